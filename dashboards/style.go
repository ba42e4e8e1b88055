package dashboards

import "github.com/grafana/grafana-foundation-sdk/go/units"

// unit is how Grafana writes a panel's values.
type unit string

// The units of all boards: one for each kind of thing.
const (
	unitCount             unit = units.Short
	unitWhole             unit = units.LocaleFormat // every digit: 12,345
	unitSeconds           unit = units.Seconds
	unitDuration          unit = units.DurationSeconds // 2 hours, 5 minutes
	unitBytes             unit = units.BytesIEC
	unitShare             unit = units.PercentUnit // of 0 to 1
	unitEventsPerSecond   unit = units.EventsPerSecond
	unitRequestsPerSecond unit = units.RequestsPerSecond
	unitRecordsPerSecond  unit = units.RecordsPerSecond
	unitRowsPerSecond     unit = units.RowsPerSecond
	unitPerSecond         unit = units.CountsPerSecond
	unitTime              unit = units.DatetimeISO
	unitText              unit = units.String
	unitYesNo             unit = units.BoolYesNo
)

// colour is a name of Grafana's palette, which has a shade of it for light and for dark themes.
type colour string

// What a colour says, on all boards.
const (
	colourShadow   colour = "purple" // would be blocked
	colourBlock    colour = "red"    // is blocked
	colourDisabled colour = "gray"
	colourPass     colour = "green"
	colourGood     colour = "green"
	colourWarn     colour = "orange"
	colourBad      colour = "red"
	colourNeutral  colour = "blue"
)

// paint gives the series of a name a colour.
type paint struct {
	name   string
	colour colour
}

// byMode paints series that are named after the mode of rules.
func byMode() []paint {
	return []paint{{"shadow", colourShadow}, {"canary", colourWarn}, {"block", colourBlock}, {"disabled", colourDisabled}}
}

// byDecision paints series that are named after a gate's decision.
func byDecision() []paint {
	return []paint{{"pass", colourPass}, {"refuse", colourBlock}, {"would_refuse", colourShadow}, {"fail_open", colourWarn}}
}
