package grafana

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"

	"github.com/weirhq/weir/dashboards"
)

// Outcome is what was done, or would be done, to a board or folder.
type Outcome string

// The outcomes.
const (
	Created   Outcome = "created"
	Updated   Outcome = "updated"
	Unchanged Outcome = "unchanged"
)

// Result is a board, and what became of it.
type Result struct {
	Board   dashboards.Dashboard
	Outcome Outcome
	URL     string // of the board in Grafana
}

// Push puts boards into the folder of a title, which it makes if there is none; no title stands for Grafana's General, which
// always is there. A dry run only asks. Boards that are as they should be are left alone, so that Grafana keeps no
// version without a change. On an error the results are those of the boards before it.
func (c *Client) Push(ctx context.Context, boards []dashboards.Dashboard, title string, dry bool) (folder Outcome, results []Result, err error) {
	var in place
	err = patiently(ctx, func() error {
		return tell(&folder, func() (did Outcome, err error) {
			in, did, err = c.folder(ctx, title, dry)
			return did, err
		})
	})
	if err != nil {
		return folder, nil, fmt.Errorf("folder %q: %w", title, err)
	}
	for _, b := range boards {
		r := Result{Board: b, URL: c.at("/d/" + b.UID)}
		err := ctx.Err()
		if err == nil {
			err = patiently(ctx, func() error {
				return tell(&r.Outcome, func() (Outcome, error) { return c.put(ctx, b, in, dry) })
			})
		}
		if err != nil {
			return folder, results, fmt.Errorf("board %q: %w", b.Title, err)
		}
		results = append(results, r)
	}
	return folder, results, nil
}

// tell says in told what a try did. Where the answer to one was lost, the next finds things as they should be: then it was the one before
// that did it.
func tell(told *Outcome, try func() (Outcome, error)) error {
	did, err := try()
	if did != Unchanged && did != "" || *told == "" {
		*told = did
	}
	return err
}

// at is an address a browser opens: without name and password.
func (c *Client) at(path string) string {
	plain := *c.base
	plain.User = nil
	return plain.JoinPath(path).String()
}

// place is a folder by its uid; that of General is empty. A folder that a dry run would make is nowhere.
type place struct {
	UID   string `json:"uid"`
	Title string `json:"title"`

	nowhere bool
}

// folderPage is how many folders are asked for at a time.
const folderPage = 1000

func (c *Client) folder(ctx context.Context, title string, dry bool) (place, Outcome, error) {
	for page := 1; title != ""; page++ {
		var found []place
		query := url.Values{"limit": {strconv.Itoa(folderPage)}, "page": {strconv.Itoa(page)}}
		if err := c.call(ctx, http.MethodGet, "/api/folders", query, nil, &found); err != nil {
			return place{}, "", err
		}
		for _, f := range found {
			if f.Title == title {
				return f, Unchanged, nil
			}
		}
		if len(found) < folderPage {
			break
		}
	}
	switch {
	case title == "":
		return place{}, Unchanged, nil
	case dry:
		return place{nowhere: true}, Created, nil
	}
	var made place
	err := c.call(context.WithoutCancel(ctx), http.MethodPost, "/api/folders", nil, map[string]string{"title": title}, &made)
	if err == nil && made.UID == "" {
		err = errors.New("it was made, and Grafana does not say its uid")
	}
	return made, Created, err
}

// stored is a board as Grafana answers it.
type stored struct {
	Dashboard map[string]any `json:"dashboard"`
	Meta      struct {
		FolderUID   string `json:"folderUid"`
		Provisioned bool   `json:"provisioned"`
	} `json:"meta"`
}

func (c *Client) put(ctx context.Context, b dashboards.Dashboard, in place, dry bool) (Outcome, error) {
	var wanted map[string]any
	if err := json.Unmarshal(b.JSON, &wanted); err != nil {
		return "", err
	}
	var there stored
	err := c.call(ctx, http.MethodGet, "/api/dashboards/uid/"+b.UID, nil, nil, &there)
	outcome := Updated
	var answer *AnswerError
	switch {
	case errors.As(err, &answer) && answer.Status == http.StatusNotFound:
		outcome = Created
	case err != nil:
		return "", err
	case !in.nowhere && there.Meta.FolderUID == in.UID && same(wanted, there.Dashboard):
		return Unchanged, nil
	case there.Meta.Provisioned:
		return "", fmt.Errorf("it comes from a file of Grafana's provisioning, and is changed there only; "+
			"weir dashboards generate writes the files (%s)", c.at("/d/"+b.UID))
	}
	if dry {
		return outcome, nil
	}
	// What was begun ends, also when somebody ends the push: nobody knows of half a call whether it was done.
	ctx = context.WithoutCancel(ctx)
	// With the version that was seen, and without overwrite, Grafana refuses if somebody saved in between, or if another board has
	// the title.
	wanted["id"] = nil
	if outcome == Updated {
		wanted["version"] = there.Dashboard["version"]
	}
	var saved struct {
		UID string `json:"uid"`
	}
	err = c.call(ctx, http.MethodPost, "/api/dashboards/db", nil,
		map[string]any{"dashboard": wanted, "folderUid": in.UID, "overwrite": false, "message": "weir dashboards push"}, &saved)
	if errors.As(err, &answer) && answer.Status == http.StatusPreconditionFailed {
		return "", fmt.Errorf("%w; it was left as it is", err)
	}
	return outcome, err
}

// same compares all but what Grafana numbers itself.
func same(wanted, there map[string]any) bool {
	return reflect.DeepEqual(numberless(wanted), numberless(there))
}

func numberless(model map[string]any) map[string]any {
	rest := make(map[string]any, len(model))
	for name, value := range model {
		if name != "id" && name != "version" {
			rest[name] = value
		}
	}
	return rest
}
