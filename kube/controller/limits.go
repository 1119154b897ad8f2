package controller

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limitsSize is how many requesters one generation of limits holds.
const limitsSize = 4096

// limits bound how many requests of each requester are looked at. Like requests.Recent it
// keeps two generations, so that no requester can fill the memory with names: a requester that was
// forgotten starts with a full burst.
type limits struct {
	rate       rate.Limit
	burst      int
	mu         sync.Mutex
	young, old map[string]*rate.Limiter
}

func newLimits(perSecond float64, burst int) *limits {
	return &limits{rate: rate.Limit(perSecond), burst: burst, young: map[string]*rate.Limiter{}}
}

// wait takes one of the requester's tokens and returns zero, or returns how long to wait
// for one.
func (l *limits) wait(requester string, now time.Time) time.Duration {
	reservation := l.of(requester).ReserveN(now, 1)
	if wait := reservation.DelayFrom(now); wait > 0 {
		reservation.CancelAt(now)
		return wait
	}
	return 0
}

func (l *limits) of(requester string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.young[requester]
	if limiter != nil {
		return limiter
	}
	if limiter = l.old[requester]; limiter == nil {
		limiter = rate.NewLimiter(l.rate, l.burst)
	}
	if len(l.young) >= limitsSize {
		l.young, l.old = map[string]*rate.Limiter{}, l.young
	}
	l.young[requester] = limiter
	return limiter
}
