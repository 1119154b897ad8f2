package controller

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/nodeattest/nodeattest/kube/internal/recent"
)

// limitsSize is the size of a limits (recent.New).
const limitsSize = 4096

// limits bounds the rate at which the requests of each requester are decided. It is bounded, so
// that many user names cannot fill the memory: a requester that was dropped starts with a full
// burst.
type limits struct {
	rate       rate.Limit
	burst      int
	requesters *recent.Map[string, *rate.Limiter]
}

// wait takes one of the requester's tokens and returns zero, or returns how long to wait
// for one.
func (l *limits) wait(requester string, now time.Time) time.Duration {
	limiter := l.requesters.Keep(requester, func() *rate.Limiter { return rate.NewLimiter(l.rate, l.burst) })
	reservation := limiter.ReserveN(now, 1)
	if wait := reservation.DelayFrom(now); wait > 0 {
		reservation.CancelAt(now)
		return wait
	}
	return 0
}
