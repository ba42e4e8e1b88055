package replica

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// slotCount is how many hash slots a Redis Cluster has. A standalone server counts as a node that has them all.
const slotCount = 16384

// slotSet is a set of hash slots.
type slotSet [slotCount / 64]uint64

func allSlots() (s slotSet) {
	for i := range s {
		s[i] = ^uint64(0)
	}
	return s
}

func (s *slotSet) add(slot int) { s[slot/64] |= 1 << (slot % 64) }

func (s *slotSet) unite(o *slotSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (s *slotSet) intersect(o *slotSet) {
	for i := range s {
		s[i] &= o[i]
	}
}

func (s *slotSet) subtract(o *slotSet) {
	for i := range s {
		s[i] &^= o[i]
	}
}

func (s *slotSet) size() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// ownSlots reads a node's answer to CLUSTER NODES: the slots that the node says it has to itself. A slot that is migrating to
// or from another node is left out, since its keys lie on both.
func ownSlots(nodes string) (slotSet, error) {
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !slices.Contains(strings.Split(fields[2], ","), "myself") {
			continue
		}
		var own, moving slotSet
		for _, word := range fields[8:] {
			into, text := &own, word
			if strings.HasPrefix(word, "[") { // [93->-<node>] or [93-<-<node>]
				into = &moving
				text, _, _ = strings.Cut(word[1:], "-")
			}
			from, to, err := slotRange(text)
			if err != nil {
				return slotSet{}, fmt.Errorf("CLUSTER NODES: slots %q: %w", word, err)
			}
			for slot := from; slot <= to; slot++ {
				into.add(slot)
			}
		}
		own.subtract(&moving)
		return own, nil
	}
	return slotSet{}, errors.New("CLUSTER NODES: the node does not name itself")
}

// slotRange reads "93" or "0-5460".
func slotRange(text string) (from, to int, err error) {
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	from, err = strconv.Atoi(first)
	if err == nil {
		to, err = strconv.Atoi(last)
	}
	if err == nil && (from < 0 || to >= slotCount || from > to) {
		err = fmt.Errorf("allowed: 0 to %d", slotCount-1)
	}
	return from, to, err
}
