package bootstraptoken

import (
	"regexp"
	"testing"
	"time"
)

// rfc3339 is the grammar of section 5.6, in upper case; the ranges are time.Parse's to
// check, but for the zone.
var rfc3339 = regexp.MustCompile(`\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])\z`)

var timeSeeds = []string{
	"2026-11-21T13:00:00Z", "2026-11-21T13:00:00.5Z", "2026-11-21T13:00:00+23:59", "2026-11-21T13:00:00.123456789-00:00",
	"2026-11-21T13:00:00,5Z", "2026-11-21T9:00:00Z", "2026-11-21T9:00:00.00Z", "2026-11-21T13:00:00+24:00", "2026-11-21T13:00:00+01:60",
	"2026-11-21T13:00:00", "2026-11-21T13:00:00z", "2026-11-21t13:00:00Z", "2026-11-21 13:00:00Z", "2026-11-21T13:00:60Z", "2026-11-21T24:00:00Z",
	"2026-11-21T13:00:00.Z", "2026-11-21T13:00Z", "2026-02-29T00:00:00Z", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "", "Z", "2026-11-21T9:00:00,5Z",
	"2026-11-21T13:00:00+0100", "2026-11-21T13:00:00+1:00", " 2026-11-21T13:00:00Z", "2026-11-21T13:00:00Z\n",
}

func checkTime(t *testing.T, s string) {
	got, ok := parseTime(s)
	want, err := time.Parse(time.RFC3339, s)
	if ok != (err == nil && rfc3339.MatchString(s)) {
		t.Errorf("%q: %v; time.Parse says %v, the grammar %v", s, ok, err, rfc3339.MatchString(s))
	}
	if ok && !got.Equal(want) {
		t.Errorf("%q: %v, want %v", s, got, want)
	}
}

func TestParseTime(t *testing.T) {
	taken := 0
	for _, s := range timeSeeds {
		checkTime(t, s)
		if _, ok := parseTime(s); ok {
			taken++
		}
	}
	if taken != 5 {
		t.Errorf("%d of the times are taken, want 5", taken)
	}
}

func FuzzParseTime(f *testing.F) {
	for _, s := range timeSeeds {
		f.Add(s)
	}
	f.Fuzz(checkTime)
}
