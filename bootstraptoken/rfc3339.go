package bootstraptoken

import "time"

const wantTime = "a time of RFC 3339, as 2006-01-02T15:04:05Z"

// parseTime reads a date-time of RFC 3339, section 5.6, in upper case. It reads nothing
// that time.Parse does not, and less: time.Parse takes an hour of one digit, a comma
// before the fraction, and the zones +24:00 and +01:60.
func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, false
	}
	const hourEnd, secondEnd = len("2006-01-02T15"), len("2006-01-02T15:04:05")
	if s[hourEnd] != ':' || s[secondEnd] == ',' {
		return time.Time{}, false
	}
	if s[len(s)-1] != 'Z' && (s[len(s)-5:len(s)-3] > "23" || s[len(s)-2:] > "59") {
		return time.Time{}, false
	}
	return t, true
}
