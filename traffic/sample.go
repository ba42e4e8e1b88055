package traffic

// SampleBytes bounds the JSON text of one Sample. Long members are cut, attrs that do not fit are left out and named
// in Cut.
const SampleBytes = 4 << 10

// Sample is the evidence that a keyed record carries of its event, small enough to be kept with a hit. Its JSON text is
// valid UTF-8 without raw NUL: bytes that are not text are written as \xNN (see Printable).
type Sample struct {
	Time      Time     `json:"time"`
	ID        string   `json:"id,omitempty"`
	IP        string   `json:"ip,omitempty"`
	Device    string   `json:"device,omitempty"`
	User      string   `json:"user,omitempty"`
	APIKey    string   `json:"api_key,omitempty"` // only its last four characters: a sample is no place for a secret
	Session   string   `json:"session,omitempty"`
	Method    string   `json:"method,omitempty"`
	Host      string   `json:"host,omitempty"`
	Path      string   `json:"path,omitempty"`
	Route     string   `json:"route,omitempty"`
	Status    int      `json:"status,omitempty"`
	UserAgent string   `json:"user_agent,omitempty"`
	Plan      string   `json:"plan,omitempty"`
	Gateway   string   `json:"gateway,omitempty"`
	Attrs     string   `json:"attrs,omitempty"` // the raw JSON text, Printable
	Cut       []string `json:"cut,omitempty"`   // members that were shortened or left out
}
