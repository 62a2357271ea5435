"""Priority and fairness: requests that are executed, queued or refused."""
