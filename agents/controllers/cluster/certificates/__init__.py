"""CertificateSigningRequests: approved for kubelets, signed once approved, removed when old."""
