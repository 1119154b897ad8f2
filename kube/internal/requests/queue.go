package requests

import "time"

// The methods of workqueue.TypedRateLimitingInterface, for a controller.

// How long a request that could not be decided waits: at first, and at most.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// Add has a request that is held looked at once more.
func (q *backlog) Add(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil {
		q.enqueue(it, false)
	}
}

// AddAfter has a request looked at once more after a time, unless it changes before.
func (q *backlog) AddAfter(key Key, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it == nil {
		return
	}
	stop(&it.retry)
	it.retry = time.AfterFunc(after, func() { //goroutine: changes the queue alone
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.items[key] == it && it.retry != nil {
			q.enqueue(it, false)
		}
	})
}

// AddRateLimited is AddAfter with intervals that grow.
func (q *backlog) AddRateLimited(key Key) {
	q.mu.Lock()
	after := lastRetry
	if it := q.items[key]; it != nil {
		after = min(after, firstRetry<<min(it.failures, 10))
		it.failures++
	}
	q.mu.Unlock()
	q.AddAfter(key, after)
}

// Forget starts the intervals anew.
func (q *backlog) Forget(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil {
		it.failures = 0
	}
}

// NumRequeues is how often a request has failed.
func (q *backlog) NumRequeues(key Key) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil {
		return it.failures
	}
	return 0
}

// Get waits for a request to look at.
func (q *backlog) Get() (key Key, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.over {
		if it := q.next(); it != nil {
			q.work.Signal() // for the next one
			return it.key, false
		}
		q.work.Wait()
	}
	return Key{}, true
}

// Done says that a request was looked at. If nothing is left to do for it, it is forgotten.
func (q *backlog) Done(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.busy[key]
	if was == nil {
		return
	}
	delete(q.busy, key)
	was.line.running--
	was.line.desk.running--
	switch it := q.items[key]; {
	case it == nil:
	case it.again:
		it.again = false
		q.enqueue(it, false)
	case it.retry == nil:
		q.drop(it)
	}
	q.tidy(was.line)
	q.work.Signal()
}

// Len is how many requests wait in the lines.
func (q *backlog) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, l := range q.lines {
		n += l.waiting.Len()
	}
	return n
}

// ShutDown has Get return at once from now on.
func (q *backlog) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	for _, it := range q.items {
		stop(&it.retry)
	}
	for _, l := range q.lines {
		stop(&l.pause)
	}
	q.work.Broadcast()
}

// ShutDownWithDrain is ShutDown: a controller waits for its own workers.
func (q *backlog) ShutDownWithDrain() { q.ShutDown() }

// ShuttingDown reports whether ShutDown was called.
func (q *backlog) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.over
}
