// Package loopback says which hosts are this machine, so that what is sent to them passes nobody: secrets go elsewhere
// by https alone.
package loopback

import "net/netip"

// Host reports whether a host, without port and brackets, is this machine by its name or its address.
func Host(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
