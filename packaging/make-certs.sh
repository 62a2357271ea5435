#!/bin/sh
# Makes a certificate authority, one certificate for each name given, and one for clients.
#
#   make-certs.sh DIRECTORY OWNER NAME...        OWNER as for chown, "" to leave it
#
# Each member's certificate is good for its name, localhost and 127.0.0.1, on both sides of a
# connection. What is there already is kept, so it may be run again.
set -eu

directory=$1
owner=$2
shift 2
days=3650

umask 077
mkdir -p "$directory"
cd "$directory"

key() {
  openssl ecparam -name prime256v1 -genkey -noout -out "$1.key.tmp"
}

if [ ! -f ca.crt ]; then
  key ca
  openssl req -x509 -new -key ca.key.tmp -sha256 -days "$days" -subj "/CN=kvstore CA" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -out ca.crt.tmp
  mv ca.key.tmp ca.key
  mv ca.crt.tmp ca.crt
fi

issue() { # name, extensions
  [ ! -f "$1.crt" ] || return 0
  key "$1"
  printf '%s\n' "keyUsage=critical,digitalSignature" "$2" > "$1.ext"
  openssl req -new -key "$1.key.tmp" -subj "/CN=$1" |
    openssl x509 -req -sha256 -days "$days" -CA ca.crt -CAkey ca.key \
      -set_serial "0x$(openssl rand -hex 16)" -extfile "$1.ext" -out "$1.crt.tmp"
  rm "$1.ext"
  mv "$1.key.tmp" "$1.key"
  mv "$1.crt.tmp" "$1.crt"
}

for name in "$@"; do
  issue "$name" "extendedKeyUsage=serverAuth,clientAuth
subjectAltName=DNS:$name,DNS:localhost,IP:127.0.0.1"
done
issue client "extendedKeyUsage=clientAuth"

chmod 755 .
chmod 644 ./*.crt
if [ -n "$owner" ]; then
  for name in "$@"; do
    chown "$owner" "$name.key"
  done
fi
