package rulestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/streams"
)

// numbersSince is the second from which numbers are counted after the store came back older: 2020-01-01. By then at
// most one number a second had been given, so that the clock is beyond all of them, those included that nobody
// remembers.
const numbersSince = 1_577_836_800

// begin begins a change of the live stream's rules: it waits for other changes, says that this build knows of
// canaries, and gives the floor, above which numbers lie that are given from now on.
//
// Other stores remember numbers: routers and the keyed log those of routing versions, detectors lineages, Redis and
// its gates generations. A database that comes back older would give them again. So each change looks whether this is
// the database of the change before: the same server, on the same timeline, with the same table. Where it is not, the
// floor rises to the clock.
func begin(ctx context.Context, tx pgx.Tx) (floor int64, err error) {
	if err := errors.Join(streams.Lock(ctx, tx, streams.Live), knowsCanary(ctx, tx)); err != nil {
		return 0, err
	}
	var was, is string
	err = tx.QueryRow(ctx, "SELECT floor, life, store_life() || '/' || tableoid FROM rule_numbers").Scan(&floor,
		&was, &is)
	if err != nil || was == is {
		return floor, err
	}
	if _, err := tx.Exec(ctx, "UPDATE rule_numbers SET life = $1", is); err != nil || was == "" {
		return floor, err
	}
	before := floor
	if floor, err = raiseFloor(ctx, tx, floor); err != nil {
		return 0, err
	}
	return floor, audit.Write(ctx, tx, audit.Entry{
		Actor: ByWeir, Action: "raise-numbers", Object: "numbers",
		Reason: "PostgreSQL is not what it was when rules were changed last: it was restored, moved, or failed " +
			"over, and may have lost numbers that it gave",
		Detail: fmt.Sprintf("versions, lineages and generations begin above %d", floor), Before: fmt.Sprint(before),
		After: fmt.Sprint(floor)})
}

// raiseFloor raises the floor to the clock, and beyond least.
func raiseFloor(ctx context.Context, tx pgx.Tx, least int64) (floor int64, err error) {
	err = tx.QueryRow(ctx, `UPDATE rule_numbers
		SET floor = greatest(floor + 1, $1::bigint + 1, extract(epoch FROM clock_timestamp())::bigint - $2::bigint)
		RETURNING floor`, least, int64(numbersSince)).Scan(&floor)
	return floor, err
}
