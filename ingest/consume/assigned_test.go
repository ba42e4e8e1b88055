package consume

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
)

// Whoever wants to know is told of the partitions of each generation: all of them, and those that are left when another member comes.
func TestAssignedPartitionsAreTold(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(3)
	var mu sync.Mutex
	told := map[string][]int{}
	note := func(name string) func(o *Options) {
		return func(o *Options) {
			o.Assigned = func(partitions []int) {
				mu.Lock()
				defer mu.Unlock()
				told[name] = slices.Sorted(slices.Values(partitions))
			}
		}
	}
	await := func(when string, enough func() bool) {
		t.Helper()
		testbed.Eventually(t, 2*time.Minute, func() error {
			mu.Lock()
			defer mu.Unlock()
			if !enough() {
				return fmt.Errorf("%s: %v", when, told)
			}
			return nil
		})
	}
	startConsumer(kit, kit.K, topic, newNoteSink(t), note("first"))
	await("alone", func() bool { return slices.Equal(told["first"], []int{0, 1, 2}) })
	startConsumer(kit, kit.Client(), topic, newNoteSink(t), note("second"))
	await("two", func() bool {
		return len(told["first"]) > 0 && len(told["second"]) > 0 &&
			slices.Equal(slices.Sorted(slices.Values(slices.Concat(told["first"], told["second"]))), []int{0, 1, 2})
	})
}
