"""The process of the controllers: `kvstack controller-manager`."""
