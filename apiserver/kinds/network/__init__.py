"""Services, what stands behind them and who may reach them."""
