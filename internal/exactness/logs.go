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

func (s *Stream) readRoutings(ctx context.Context) (map[int64]routing, error) {
	out := map[int64]routing{}
	err := s.Query(ctx, `SELECT number, document FROM {ns}.routing_versions WHERE stream = 'live'`, func(rows pgx.Rows) error {
		var number int64
		var document string
		if err := rows.Scan(&number, &document); err != nil {
			return err
		}
		var r routing
		err := json.Unmarshal([]byte(document), &r)
		out[number] = r
		return err
	})
	return out, err
}

func (s *Stream) readSecret(ctx context.Context) (secret []byte, err error) {
	err = s.Query(ctx, `SELECT value FROM {ns}.secrets`, func(rows pgx.Rows) error { return rows.Scan(&secret) })
	if err == nil && len(secret) == 0 {
		err = errors.New("the installation has no secret")
	}
	return secret, err
}
