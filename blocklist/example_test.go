package blocklist_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A reader of its own, an edge script say, looks a request up by the key of its identity: of the fields and the prefix of the
// address that the rule's block key names.
func ExampleKeys_Block() {
	keys, err := blocklist.NewKeys("weir")
	if err != nil {
		fmt.Println(err)
		return
	}
	id := traffic.Identity{IP: netip.MustParseAddr("203.0.113.9"), Device: "tv-7"}
	subject, _ := traffic.MakeSubject(&id, []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}})
	fmt.Println(keys.Block(subject.Stored(), "guest-token-flood"))
	// Output:
	// weir:v1:block:{ip=203.0.113.9%2F32&device=tv-7}:guest-token-flood
}

// What stands under a block key holds a client for as long as the rule blocks, under the generation of its mode of then.
func ExampleDecodeBlock() {
	value := `{"v":1,"action":"block","scope":"match","rule":"guest-token-flood","generation":3,` +
		`"hit":"6b1d4c0f2a9e8d7c5b3a190817263544","since":"2027-01-15T08:00:00.000000Z","until":"2027-01-15T08:10:00.000000Z"}`
	block, err := blocklist.DecodeBlock([]byte(value))
	if err != nil {
		fmt.Println(err)
		return
	}
	now := traffic.At(time.Date(2027, 1, 15, 8, 4, 0, 0, time.UTC))
	fmt.Println("left:", block.Until.Sub(now))
	for _, mode := range []rules.ModeState{
		{Mode: rules.ModeBlock, Generation: 3}, {Mode: rules.ModeShadow, Generation: 4}, {Mode: rules.ModeBlock, Generation: 5},
	} {
		fmt.Printf("rule in mode %s of generation %d: in force %t\n", mode.Mode, mode.Generation, block.InForce(&mode))
	}
	// Output:
	// left: 6m0s
	// rule in mode block of generation 3: in force true
	// rule in mode shadow of generation 4: in force false
	// rule in mode block of generation 5: in force false
}
