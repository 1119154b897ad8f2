// Package monitoring holds the alerts and the dashboard of kube/deploy/monitoring against Prometheus: each alert
// against recorded series, here, and against the real programs in test/kube.
package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// folder is that of the shipped files, from a package below test.
var folder = filepath.Join("..", "..", "kube", "deploy", "monitoring")

// Read reads a shipped file.
func Read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// durations matches the durations of rules and queries: a range, an offset, and for how long an alert must hold.
var durations = regexp.MustCompile(`(\[|offset |for: )([0-9]+)([smhd])\b`)

// Faster divides every duration of rules or queries by a factor, so that a test need not wait for minutes.
// Numbers of seconds in an expression stay as they are.
func Faster(text string, factor int) string {
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	return durations.ReplaceAllStringFunc(text, func(found string) string {
		part := durations.FindStringSubmatch(found)
		n, _ := strconv.Atoi(part[2]) // of at most a few digits
		return part[1] + fmt.Sprintf("%dms", time.Duration(n)*units[part[3]]/time.Duration(factor)/time.Millisecond)
	})
}
