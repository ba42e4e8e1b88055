package exactness

import (
	"fmt"
	"time"
)

// Event is the JSON that a gateway would write.
type Event struct {
	Time   string `json:"time"` // RFC 3339
	ID     string `json:"id"`
	IP     string `json:"ip"`
	Device string `json:"device"`
	User   string `json:"user,omitempty"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Status int    `json:"status"`
}

// micros is the event's time in the unit of the keyed log.
func (e *Event) micros() (int64, error) {
	at, err := time.Parse(time.RFC3339Nano, e.Time)
	if err != nil {
		return 0, fmt.Errorf("time of event %s: %w", e.ID, err)
	}
	return at.UnixMicro(), nil
}

// value is what a rule's key takes from the event, "" for nothing.
func (e *Event) value(field string) string {
	switch field {
	case "ip":
		return e.IP + "/32"
	case "device":
		return e.Device
	case "user":
		return e.User
	}
	return ""
}
