// A mail server for tests: the npm package smtp-server with two listeners, one with TLS from the
// first byte and one with STARTTLS, and a mailbox per recipient.
//
//   node server.js KEY_PEM CERT_PEM MAILBOX_DIR
//
// What it does with a mail is the recipient's first name, up to a plus sign:
//   once      refuses with 451 the first time it is asked for this recipient, then accepts
//   never     refuses with 550
//   full      takes the data, then answers 552
//   busy      takes the data, then answers 451
//   hangup    closes the connection instead of answering RCPT
//   vanish    keeps the mail and closes the connection instead of answering
//   silent    keeps the mail and does not answer at all
//   anybody   accepts
//
// Every mail that was taken, answered or not, is a file MAILBOX_DIR/RECIPIENT/NUMBER.eml. One
// line of JSON per event goes to standard output.
'use strict';
const fs = require('fs');
const path = require('path');
const { SMTPServer } = require('smtp-server');

const [key, cert, mailboxes] = [
    fs.readFileSync(process.argv[2]),
    fs.readFileSync(process.argv[3]),
    process.argv[4],
];
const asked = new Map();
let mails = 0;

const say = (event) => process.stdout.write(JSON.stringify(event) + '\n');
const refuse = (code, words) => Object.assign(new Error(words), { responseCode: code });
const manner = (address) => address.split('@')[0].split('+')[0];

function onRcptTo(address, session, callback) {
    const to = address.address;
    const times = (asked.get(to) || 0) + 1;
    asked.set(to, times);
    say({ event: 'asked', to, secure: session.secure, user: session.user || null });
    switch (manner(to)) {
        case 'once': return callback(times === 1 ? refuse(451, 'try again later') : null);
        case 'never': return callback(refuse(550, 'no such user here'));
        case 'hangup': return session.towpath_socket.destroy();
        default: return callback();
    }
}

function onData(stream, session, callback) {
    const chunks = [];
    stream.on('data', (chunk) => chunks.push(chunk));
    stream.on('end', () => {
        const recipients = session.envelope.rcptTo.map((to) => to.address);
        const how = manner(recipients[0]);
        if (how === 'full') return callback(refuse(552, 'the mailbox is full'));
        if (how === 'busy') return callback(refuse(451, 'try again later'));
        for (const to of recipients) {
            const dir = path.join(mailboxes, to);
            fs.mkdirSync(dir, { recursive: true });
            mails += 1;
            const file = path.join(dir, `${String(mails).padStart(9, '0')}.eml`);
            fs.writeFileSync(file + '.tmp', Buffer.concat(chunks));
            fs.renameSync(file + '.tmp', file);
            say({ event: 'mail', to, file });
        }
        if (how === 'vanish') return session.towpath_socket.destroy();
        if (how === 'silent') return undefined;
        return callback(null, 'taken');
    });
}

function onAuth(auth, session, callback) {
    if (auth.username === 'towpath' && auth.password === 'p@ss/word') {
        return callback(null, { user: auth.username });
    }
    return callback(refuse(535, 'wrong user or password'));
}

// The package gives handlers no socket; the connection that is being handled knows its own.
function listen(options) {
    const server = new SMTPServer({
        key, cert, authOptional: true, authMethods: ['PLAIN', 'LOGIN'], logger: false,
        closeTimeout: 1000, disableReverseLookup: true, onAuth, onData, onRcptTo,
        onConnect(session, callback) {
            for (const connection of server.connections) {
                if (connection.session === session) {
                    Object.defineProperty(session, 'towpath_socket', { get: () => connection._socket });
                }
            }
            callback();
        },
        ...options,
    });
    server.on('error', () => {}); // A client that breaks off is what half of the tests are about.
    return new Promise((resolve) => {
        const listener = server.listen(0, '127.0.0.1', () => resolve(listener.address().port));
    });
}

Promise.all([listen({ secure: true }), listen({ secure: false }), listen({ secure: false, hideSTARTTLS: true })])
    .then(([implicit, starttls, plain]) => say({ event: 'listening', implicit, starttls, plain }));

// The test that started us holds our standard input; when it is gone, so are we.
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
