// node api.js PORT [FILE]: an API with the operation POST /v1/guest-tokens, as Node's programs look for it. The answer
// names the readings of the request's target that find the operation, with " (any case)" where they fold case. With a file,
// each request is a line of it before it is answered.
'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const url = require('url');

const operation = '/v1/guest-tokens';

const readings = {
  'url.parse': (target) => url.parse(target).pathname,
  'url.parse, decoded': (target) => decodeURIComponent(url.parse(target).pathname),
  'new URL': (target) => new URL(target, 'http://api.example.com').pathname,
  'new URL, decoded': (target) => decodeURIComponent(new URL(target, 'http://api.example.com').pathname),
  'split at ?': (target) => target.split('?')[0],
  'split at ? or ;': (target) => target.split(/[?;#]/)[0], // as find-my-way, the router of Fastify, does
  'decoded, normalised': (target) => path.posix.normalize(decodeURIComponent(url.parse(target).pathname)), // as send does
};

// Express matches a route by this expression, against the pathname of url.parse, if it has its defaults.
const route = /^\/v1\/guest-tokens\/?$/i;

function served(method, target) {
  if (method !== 'POST') {
    return [];
  }
  const found = [];
  for (const [name, read] of Object.entries(readings)) {
    try {
      const reading = read(target);
      if (reading === operation) {
        found.push(name);
      } else if (reading.toLowerCase() === operation) {
        found.push(name + ' (any case)');
      }
    } catch {
      // no URL: an API answers 400
    }
  }
  const pathname = url.parse(target).pathname || '';
  if (route.test(pathname)) {
    found.push('express' + (pathname.startsWith(operation) ? '' : ' (any case)'));
  }
  return found;
}

// lines are all values of a header, as they came.
function lines(request, name) {
  const found = [];
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    if (request.rawHeaders[i].toLowerCase() === name) {
      found.push(request.rawHeaders[i + 1]);
    }
  }
  return found;
}

const server = http.createServer((request, response) => {
  let by = [];
  try {
    by = served(request.method, request.url);
  } catch {
    by = [];
  }
  request.on('error', () => {});
  request.resume();
  if (process.argv[3]) {
    fs.appendFileSync(process.argv[3], JSON.stringify({
      agent: lines(request, 'user-agent'), method: request.method, target: request.url, served: by,
      forwarded: lines(request, 'x-forwarded-for'), user: lines(request, 'x-user-id'), cookie: lines(request, 'cookie'),
    }) + '\n');
  }
  const body = by.join('\n');
  response.writeHead(by.length > 0 ? 201 : 404, { 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
});
server.listen(Number(process.argv[2]), '127.0.0.1');
