// Package wallclock has the default of every field Now.
package wallclock

import "time"

// Or returns now, or [time.Now] for nil.
func Or(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}
