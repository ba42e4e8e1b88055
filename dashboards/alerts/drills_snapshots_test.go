package alerts

import "fmt"

// snapshotDrills are of snapshots that grow older than they may beside different retentions.
func snapshotDrills() []drill {
	age := func(samples string) string {
		return `weir_detect_snapshot_age_seconds{namespace="weir",stream="live",partition="3"} ` + samples
	}
	retention := func(instance string, hours float64) string {
		return fmt.Sprintf(`weir_detect_keyed_retention_seconds{namespace="weir",stream="live",instance="%s"} %.0fx200`, instance, hours*3600)
	}
	tooOld := func(old string) []notice {
		return []notice{{
			"namespace=weir,partition=3", "The newest snapshot of keyed partition 3 is " + old + " old",
			"Who takes over keyed partition 3 (weir) has to count " + old + " anew, and counts too little once Kafka has deleted some of that.",
		}}
	}
	outlived := func(old string) []notice {
		return []notice{{
			"namespace=weir,partition=3", "Kafka will soon delete what the newest snapshot of keyed partition 3 needs",
			"The newest snapshot of keyed partition 3 (weir) is " + old + " old, more than half of the time for which Kafka keeps what came since.",
		}}
	}
	long := age("6840+60x20 60x10")
	short := age("0+60x60 0x20")
	return []drill{
		{alert: "WeirSnapshotTooOld", series: []string{long, retention("a", 24)}, quiet: "7m", fires: "12m", over: "22m", notices: tooOld("2h 6m 0s")},
		// Kafka keeps what was counted for ever.
		{alert: "WeirSnapshotTooOld", series: []string{long}, quiet: "7m", fires: "12m", over: "22m", notices: tooOld("2h 6m 0s")},
		// For an hour, which only those know that were started since it was set; the others of the installation are of another namespace.
		{alert: "WeirSnapshotTooOld", series: []string{
			short, retention("a", 24), retention("b", 1),
			`weir_detect_keyed_retention_seconds{namespace="brief",stream="live"} 60x200`, `weir_detect_keyed_retention_seconds{namespace="weir",stream="replay"} 60x200`,
		}, quiet: "25m", fires: "27m", over: "62m", notices: tooOld("27m 0s")},
		{alert: "WeirSnapshotNearlyOutlived", series: []string{
			short, retention("a", 24), retention("b", 1),
			`weir_detect_keyed_retention_seconds{namespace="brief",stream="live"} 60x200`, `weir_detect_keyed_retention_seconds{namespace="weir",stream="replay"} 60x200`,
		}, quiet: "35m", fires: "36m", over: "62m", notices: outlived("36m 0s")},
	}
}
