// Package adversary plays the clients that want past a block, out of the counts, or somebody else blocked. It asks real
// servers what they serve, and sends thousands of malformed, respelled and forged requests through real gateways that are
// set up as the documents say. It has tests only.
package adversary
