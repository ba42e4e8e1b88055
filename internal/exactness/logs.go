package exactness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/oracle"
)

// Logs is everything that the judges read: the requests and the keyed log, and what was published in Postgres.
type Logs struct {
	source   [][]Event        // requests by partition and offset
	keyed    [][]oracle.Keyed // event records of the keyed log by partition, in order
	fenced   [][]oracle.Keyed // those that count
	holes    int
	routings map[int64]routing
	secret   []byte
	lost     map[versionOn]bool // nobody counts their events any more, and weir has told so
}

// routing is the published part of a routing version that the judges need.
type routing struct {
	Rules []rule `json:"rules"`
	Allow []struct {
		ID      string `json:"id"`
		Entries []struct {
			Kind  string    `json:"kind"`
			Value string    `json:"value"`
			Until time.Time `json:"until"`
		} `json:"entries"`
	} `json:"allow"`
}

type rule struct {
	ID      string `json:"id"`
	Lineage int    `json:"lineage"`
	Match   struct {
		Methods []string `json:"methods"`
		Path    string   `json:"path"`
	} `json:"match"`
	Key []struct {
		Field string `json:"field"`
	} `json:"key"`
	Limit   int  `json:"limit"`
	Pending bool `json:"pending"`
	Raised  *struct {
		Limit int       `json:"limit"`
		Until time.Time `json:"until"`
	} `json:"raised"`
	Candidate *struct {
		Limit int `json:"limit"`
	} `json:"candidate"`
	Allow []string `json:"allow"`
	Tiers []struct {
		When  string `json:"when"`
		Limit int    `json:"limit"`
	} `json:"tiers"`
	Window   time.Duration `json:"window"`
	Lateness time.Duration `json:"lateness"`
}

// ReadLogs reads both logs to the ends that they have now. The stream should be at rest.
func (s *Stream) ReadLogs(ctx context.Context) (*Logs, error) {
	l := &Logs{source: make([][]Event, s.Requests), keyed: make([][]oracle.Keyed, s.Keyed), fenced: make([][]oracle.Keyed, s.Keyed)}
	var err error
	if l.routings, err = s.readRoutings(ctx); err != nil {
		return nil, err
	}
	if l.secret, err = s.readSecret(ctx); err != nil {
		return nil, err
	}
	err = s.EachRecord(ctx, s.Topic("requests"), s.Requests, func(r *kgo.Record) error {
		var e Event
		if err := json.Unmarshal(r.Value, &e); err != nil {
			return fmt.Errorf("request %d of partition %d: %w", r.Offset, r.Partition, err)
		}
		l.source[r.Partition] = append(l.source[r.Partition], e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = s.EachRecord(ctx, s.Topic("keyed"), s.Keyed, func(r *kgo.Record) error {
		k, err := oracle.ReadKeyed(r.Value)
		if err != nil {
			return fmt.Errorf("keyed record %d of partition %d: %w", r.Offset, r.Partition, err)
		}
		if k.Kind == 1 {
			l.keyed[r.Partition] = append(l.keyed[r.Partition], k)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for q, records := range l.keyed {
		l.fenced[q] = oracle.Fence(records, func(oracle.Keyed) { l.holes++ })
	}
	return l, nil
}

// readRoutings reads the routing versions that the store has, and those that it had when it was asked to remember them.
func (s *Stream) readRoutings(ctx context.Context) (map[int64]routing, error) {
	documents := s.remembered
	if documents == nil {
		var err error
		if documents, err = s.documents(ctx); err != nil {
			return nil, err
		}
	} else if err := s.Remember(ctx); err != nil {
		return nil, err
	}
	out := map[int64]routing{}
	for number, document := range documents {
		var r routing
		if err := json.Unmarshal([]byte(document), &r); err != nil {
			return nil, fmt.Errorf("routing version %d: %w", number, err)
		}
		out[number] = r
	}
	return out, nil
}

// Lost notes that weir has told of a routing version on a keyed partition that the store has lost it, and that nobody
// counts its events from then on. What was counted of them before stands in history.
func (l *Logs) Lost(version int64, keyed int) {
	if l.lost == nil {
		l.lost = map[versionOn]bool{}
	}
	l.lost[versionOn{version, keyed}] = true
}

// versionOn is a routing version on a keyed partition.
type versionOn struct {
	version int64
	keyed   int
}

func (s *Stream) readSecret(ctx context.Context) (secret []byte, err error) {
	err = s.Query(ctx, `SELECT value FROM {ns}.secrets`, func(rows pgx.Rows) error { return rows.Scan(&secret) })
	if err == nil && len(secret) == 0 {
		err = errors.New("the installation has no secret")
	}
	return secret, err
}
