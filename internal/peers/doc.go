// Package peers runs the test cases of other limiters and detectors through weir's windows. It holds tests only;
// testdata/README.md says where the cases come from, docs/peers.md which of them are not asserted, and why.
package peers
