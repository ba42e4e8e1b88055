package console

import (
	"strconv"
	"strings"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Commands are shown to be copied into a shell. Rule ids are [a-z0-9-], and a subject is made of RFC 3986's unreserved
// characters, '%', '=' and '&': in single quotes no shell finds anything in it.

// releaseCommand releases a block; empty where the command line has no words for its subject.
func releaseCommand(weir, rule string, subject traffic.Subject) string {
	words := subjectWords(subject)
	if words == "" {
		return ""
	}
	return weir + " blocks release " + rule + " " + words + ` --reason "…"`
}

// subjectWords are the arguments that mean s. Without a percent sign the command takes a subject apart by words.
func subjectWords(s traffic.Subject) string {
	if _, err := s.Values(); err != nil { // not a subject: it could hold anything
		return ""
	}
	if strings.Contains(string(s), "%") {
		return "'" + string(s) + "'"
	}
	return strings.ReplaceAll(string(s), "&", " ")
}

// modeCommand changes what a rule does: a promoted rule goes into shadow, one that is off counts again, one in shadow blocks by the version
// that is shown.
func modeCommand(weir, rule string, mode rules.Mode, version int) string {
	if mode == rules.ModeShadow {
		return promoteCommand(weir, rule, version)
	}
	return weir + " rules demote " + rule + ` --reason "…"`
}

// promoteCommand lets a version of a rule block, and is refused where another one has come since it was shown.
func promoteCommand(weir, rule string, version int) string {
	return weir + " rules promote " + rule + " --version " + strconv.Itoa(version) + ` --reason "…"`
}

// decisionsCommand shows what was decided about a rule's episodes.
func decisionsCommand(weir, rule string) string {
	return weir + " history decisions --rule " + rule + " --since 1h"
}
