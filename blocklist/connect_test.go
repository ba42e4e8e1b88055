package blocklist_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/testbed"
)

// The nodes that a client finds are its own: clients of one configuration do not write into each other's list.
func TestConnectLeavesTheAddressesAlone(t *testing.T) {
	addresses := append(make([]string, 0, 64), testbed.RedisCluster(t)[0])
	store, err := blocklist.Connect(blocklist.Server{Cluster: addresses, Timeout: 10 * time.Second}, testbed.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	testbed.Eventually(t, 30*time.Second, func() error {
		_, err := store.Masters(t.Context())
		return err
	})
	if behind := addresses[1:cap(addresses)]; slices.ContainsFunc(behind, func(s string) bool { return s != "" }) {
		t.Errorf("behind the configured addresses stand %q", behind)
	}
}
