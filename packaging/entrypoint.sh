#!/bin/sh
# Entry point of the image: runs the command that the arguments name.
#
#   (none), --flag …, gateway …, grpc-proxy …       kvstore with these arguments
#   kvstack …, kvstore …, kvstore-util …            that program
#   up …, apiserver …, any other word …             kvstack with these arguments
set -eu

case "${1-}" in
"" | -* | gateway | grpc-proxy) exec kvstore "$@" ;;
kvstack | kvstore | kvstore-util) exec "$@" ;;
*) exec kvstack "$@" ;;
esac
