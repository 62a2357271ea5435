"""How other machines become nodes of a cluster: tokens, ConfigMaps and the command that joins.

    machine of the cluster                              machine that joins
    token_command   kvstack token create
      └► tokens       a Secret of kube-system
    cluster_facts   kube-public/cluster-info, … ──────► discovery   checks it by token and CA hash
    access          who may read and request what  join_command  TLS bootstrap, then a node

Names of objects and flags are kubeadm's. Who signs cluster-info, deletes tokens that have ended and
approves certificates are controllers; who knows a token is the API server.
"""
