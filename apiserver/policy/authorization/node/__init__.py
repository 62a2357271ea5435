"""The Node authorizer: kubelets read what their pods need, and write their own objects."""
