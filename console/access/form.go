package access

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
)

// MaxFormBytes bounds what a form may bring, whoever sends it.
const MaxFormBytes = 1 << 20

// formType is what forms are sent as. None of the console's has files.
const formType = "application/x-www-form-urlencoded"

// FormError says that a form cannot be read, and which HTTP status says so.
type FormError struct {
	Status int
	Text   string
}

func (e *FormError) Error() string { return e.Text }

// IsForm reports whether a request brings a form.
func IsForm(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == formType
}

// readable is a *FormError where the query of a request cannot be read whole. net/http leaves out what it cannot read,
// and who asks about one source would be answered about all.
func readable(r *http.Request) error {
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return &FormError{http.StatusBadRequest, fmt.Sprintf("the query cannot be read: %v; write ; as %%3B and %% as "+
			"%%25; nothing was done", err)}
	}
	return nil
}

// Form reads the form of a request into r.PostForm, once: whoever asks again has what was read. Of a form that cannot
// be read whole net/http keeps what came before, and says so to the first who asks alone: with an error r goes
// nowhere.
func Form(w http.ResponseWriter, r *http.Request) error {
	if r.PostForm != nil {
		return nil
	}
	if kind := r.Header.Get("Content-Type"); kind != "" && !IsForm(r) {
		return &FormError{http.StatusUnsupportedMediaType,
			fmt.Sprintf("Content-Type: got %q; allowed: %s; nothing was done", kind, formType)}
	}
	r.Body = http.MaxBytesReader(w, r.Body, MaxFormBytes)
	err := r.ParseForm()
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return &FormError{http.StatusRequestEntityTooLarge, "the form is larger than 1 MiB; nothing was done"}
	case err != nil:
		return &FormError{http.StatusBadRequest, fmt.Sprintf("the form cannot be read: %v; nothing was done", err)}
	}
	return nil
}
