// A stream to a container over a WebSocket: channels as a first byte of each message.
//
//     const stream = openExec(server, path, { onOutput, onEnd });
//     stream.send("ls\n");  stream.resize(80, 24);  stream.close();
//
// A browser cannot give a WebSocket headers. The token goes among the offered subprotocols, in
// base64url; the server takes it out and answers with the other one.

const PROTOCOL = "v5.channel.k8s.io";
const BEARER = "base64url.bearer.authorization.k8s.io.";
const INPUT = 0;
const OUTPUT = 1;
const ERRORS = 2;
const STATUS = 3;
const RESIZE = 4;
const UNSENT_BYTES_MAX = 1 << 20;

/** Open a stream; path: of exec or attach with its query. onEnd(text, {isOpened}) is called once. */
export function openExec(server, path, { onOpen, onOutput, onEnd }) {
  const protocols = [PROTOCOL];
  if (server.token) protocols.push(BEARER + base64url(server.token));
  const url = new URL(server.address(path, { isPresent: true }), server.origin);
  url.protocol = url.protocol.replace("http", "ws");
  const socket = new WebSocket(url, protocols);
  socket.binaryType = "arraybuffer";
  let status = "";
  let isOpened = false;
  let isOver = false;
  const end = (text) => {
    if (isOver) return;
    isOver = true;
    onEnd(text, { isOpened });
  };
  socket.onopen = () => {
    isOpened = true;
    onOpen?.();
  };
  socket.onmessage = ({ data }) => {
    const bytes = new Uint8Array(data);
    if (bytes[0] === STATUS) status = ending(new TextDecoder().decode(bytes.subarray(1)));
    else if (bytes[0] === OUTPUT || bytes[0] === ERRORS) onOutput(bytes.subarray(1));
  };
  socket.onclose = () => end(status || (isOpened ? "The connection has ended." : "The connection was refused."));
  const send = (channel, bytes) => {
    if (socket.readyState !== WebSocket.OPEN || socket.bufferedAmount > UNSENT_BYTES_MAX) return false;
    const message = new Uint8Array(bytes.length + 1);
    message[0] = channel;
    message.set(bytes, 1);
    socket.send(message);
    return true;
  };
  const encoder = new TextEncoder();
  return {
    send: (text) => send(INPUT, encoder.encode(text)),
    resize: (columns, rows) => send(RESIZE, encoder.encode(JSON.stringify({ Width: columns, Height: rows }))),
    close: () => socket.close(),
  };
}

function ending(text) {
  try {
    const status = JSON.parse(text);
    if (status.status === "Success") return "The command has ended.";
    return status.message || text;
  } catch {
    return text;
  }
}

/** Return a text in base64url without padding. */
export function base64url(text) {
  const bytes = new TextEncoder().encode(text);
  let binary = "";
  for (const each of bytes) binary += String.fromCharCode(each);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
