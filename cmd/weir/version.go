package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/detectors"
)

// linkedVersion is the version of a build that cannot know it by itself, as in an image, where there is no git: go build
// -ldflags "-X main.linkedVersion=v1.2.3". Only the linker writes it, which takes nothing but a package's variable.
var linkedVersion string

// buildVersion describes this binary.
type buildVersion struct {
	Version      string `json:"version"`
	Revision     string `json:"revision,omitempty"`
	Go           string `json:"go"`
	RecordFormat int    `json:"record_format"`
	HitFormat    int    `json:"hit_format"`
}

func readBuildVersion() buildVersion {
	v := buildVersion{
		Version: cmp.Or(linkedVersion, "(devel)"), Go: runtime.Version(), RecordFormat: detectors.RecordFormat, HitFormat: detectors.HitFormat,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if linkedVersion == "" && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version and the formats that this build writes",
		Example: "  weir version\n  weir version --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(*cobra.Command, []string) error {
			v := readBuildVersion()
			if a.Format == "json" {
				return a.WriteJSON(v)
			}
			_, err := fmt.Fprintf(a.Stdout, "weir %s %s\nkeyed records: format %d; hits: format %d\n",
				v.Version, v.Go, v.RecordFormat, v.HitFormat)
			return err
		}),
	}
}
