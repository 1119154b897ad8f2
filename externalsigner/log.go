package externalsigner

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// logBurst lines of one key are logged at once, and then one in each logInterval, so that no client
	// fills a disk.
	logBurst    = 10
	logInterval = 10 * time.Second
	// logKeys is how many keys there are before users have no limit of their own any more. The keys of calls that
	// failed are few, and no user can take them.
	logKeys = 64
)

// limitedLog logs what clients cause, of each key a limited number of lines.
type limitedLog struct {
	to  *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	keys map[any]*allowance
}

// allowance is how many lines of a key may be logged.
type allowance struct {
	left    int
	at      time.Time // when left was last increased
	dropped int       // lines that were not logged since the last one that was
}

func newLimitedLog(to *slog.Logger) *limitedLog {
	return &limitedLog{to: to, now: time.Now, keys: map[any]*allowance{}}
}

// warn logs a line, with the number of lines of the key that were dropped before it.
func (l *limitedLog) warn(key any, message string, args ...any) {
	if dropped, ok := l.allow(key); ok {
		if dropped != 0 {
			args = append(args, "dropped", dropped)
		}
		l.to.Warn(message, args...)
	}
}

func (l *limitedLog) allow(key any) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	a := l.keys[key]
	if client, ok := key.(refusedKey); ok && a == nil && len(l.keys) >= logKeys {
		key = refusedKey{client.reason, overflowUID} // the other users share one for each reason
		a = l.keys[key]
	}
	if a == nil {
		a = &allowance{left: logBurst, at: now}
		l.keys[key] = a
	}
	if more := int(now.Sub(a.at) / logInterval); more > 0 {
		a.left, a.at = min(a.left+more, logBurst), a.at.Add(time.Duration(more)*logInterval)
	}
	if a.left == 0 {
		a.dropped++
		return 0, false
	}
	a.left--
	dropped, a.dropped = a.dropped, 0
	return dropped, true
}
