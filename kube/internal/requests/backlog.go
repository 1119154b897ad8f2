package requests

import (
	"container/list"
	"maps"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
)

// bounds limit the requests in a backlog. A request beyond the first two bounds is left out until a
// later list; one beyond the others is held by its name alone, and read when its turn comes.
type bounds struct {
	requests, ofRequester int // how many, in all, and of one requester to one signer
	bytes, ofRequesterB   int // how many bytes, likewise
}

// shipped are the bounds of a program: at most some 120 MiB.
var shipped = bounds{requests: 1 << 16, ofRequester: 1 << 13, bytes: 64 << 20, ofRequesterB: 8 << 20}

// Key identifies a certificate request.
type Key struct {
	// SignerName is the signer under which it is filed.
	SignerName string
	// Name is the name of the object.
	Name string
}

// backlog holds the requests that wait to be looked at, in a line for each requester and
// signer: first come, first served, and the lines in turn. It is the queue of a controller.
// Finished requests are not kept.
type backlog struct {
	opts   Options
	bounds bounds

	mu    sync.Mutex
	work  *sync.Cond // there may be something for Get
	items map[Key]*item
	busy  map[Key]*item // looked at now
	lines map[Key]*line // by signer and, as Name, requester
	desks map[string]*desk
	bytes int
	over  bool
}

// desk serves the requests to one signer: slow ones delay no other signer's.
type desk struct {
	running int
	open    list.List // of the lines whose first request can be looked at
	left    bool      // some were left out since the last list
}

// line is the requests of one requester to one signer.
type line struct {
	key            Key
	desk           *desk
	waiting        list.List // of items
	place          *list.Element
	items, running int
	bytes          int
	pause          *time.Timer // until the requester may have the next one
}

// item is a request in the backlog: it waits in its line, is looked at, or waits to be tried
// again.
type item struct {
	key      Key
	line     *line
	uid      types.UID // as Recent has it
	version  string
	created  time.Time
	signed   bool
	object   *certificatesv1.CertificateSigningRequest // nil: there was no room
	size     int
	round    int // of the list that had it last
	place    *list.Element
	again    bool // it has changed while it was looked at
	failures int
	retry    *time.Timer
}

func newBacklog(opts Options, b bounds) *backlog {
	q := &backlog{opts: opts, bounds: b, items: map[Key]*item{}, busy: map[Key]*item{}, lines: map[Key]*line{}, desks: map[string]*desk{}}
	q.work = sync.NewCond(&q.mu)
	return q
}

// ofRequester is how many requests of one requester to one signer are looked at at a time, so
// that slow ones delay no other requester's.
func (q *backlog) ofRequester() int { return max(1, q.opts.Workers/4) }

// put takes a request as it is now.
func (q *backlog) put(o *certificatesv1.CertificateSigningRequest, round int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := Key{SignerName: o.Spec.SignerName, Name: o.Name}
	of := Key{SignerName: key.SignerName, Name: o.Spec.Username}
	it := q.items[key]
	if it != nil && it.line.key != of { // deleted, and filed again by another requester
		q.drop(it)
		it = nil
	}
	if it == nil {
		l := q.lineOf(of)
		if !q.room(l, o.CreationTimestamp.Time) {
			q.tidy(l)
			return
		}
		it = &item{key: key, line: l, created: o.CreationTimestamp.Time}
		q.items[key] = it
		l.items++
	}
	it.round = round
	if it.version == o.ResourceVersion && it.version != "" {
		return
	}
	it.uid, it.version, it.signed = id(o), o.ResourceVersion, len(o.Status.Certificate) != 0
	q.hold(it, o)
	q.enqueue(it, true)
}

func (q *backlog) lineOf(key Key) *line {
	if q.desks[key.SignerName] == nil {
		q.desks[key.SignerName] = new(desk)
	}
	if q.lines[key] == nil {
		q.lines[key] = &line{key: key, desk: q.desks[key.SignerName]}
	}
	return q.lines[key]
}

// room makes room in a line for a request that was filed at a time. The newest of the longest
// line has to go, or the new one itself is left out.
func (q *backlog) room(l *line, at time.Time) bool {
	from := l
	if l.items < q.bounds.ofRequester {
		if len(q.items) < q.bounds.requests {
			return true
		}
		longest := slices.MaxFunc(slices.Collect(maps.Values(q.lines)), func(a, b *line) int { return a.waiting.Len() - b.waiting.Len() })
		if longest.waiting.Len() > l.waiting.Len()+1 {
			from = longest
		}
	}
	if q.opts.LeftOut != nil {
		q.opts.LeftOut()
	}
	from.desk.left = true
	last := from.waiting.Back()
	if last == nil || from == l && !last.Value.(*item).created.After(at) {
		return false
	}
	q.drop(last.Value.(*item))
	return true
}

// hold keeps the object if there is room for it.
func (q *backlog) hold(it *item, o *certificatesv1.CertificateSigningRequest) {
	size := o.Size()
	q.count(it, -it.size)
	it.object, it.size = nil, 0
	if q.bytes+size <= q.bounds.bytes && it.line.bytes+size <= q.bounds.ofRequesterB {
		it.object, it.size = o, size
		q.count(it, size)
	}
}

func (q *backlog) count(it *item, size int) {
	q.bytes += size
	it.line.bytes += size
}

// enqueue puts a new request into its line by the time at which it was filed, and any other at the
// end.
func (q *backlog) enqueue(it *item, isNew bool) {
	stop(&it.retry)
	switch l := it.line; {
	case q.busy[it.key] != nil:
		it.again = true
	case it.place == nil:
		before := l.waiting.Back()
		for isNew && before != nil && before.Value.(*item).created.After(it.created) {
			before = before.Prev()
		}
		if before == nil {
			it.place = l.waiting.PushFront(it)
		} else {
			it.place = l.waiting.InsertAfter(it, before)
		}
		q.settle(l)
	}
}

func stop(t **time.Timer) {
	if *t != nil {
		(*t).Stop()
	}
	*t = nil
}

// leave takes a request out of its line.
func (it *item) leave() {
	if it.place != nil {
		it.line.waiting.Remove(it.place)
	}
	it.place = nil
}

// drop forgets a request. If it is looked at now, that goes on.
func (q *backlog) drop(it *item) {
	stop(&it.retry)
	it.leave()
	q.count(it, -it.size)
	it.line.items--
	delete(q.items, it.key)
	q.tidy(it.line)
}

// tidy settles a line, and forgets it if it has nothing.
func (q *backlog) tidy(l *line) {
	q.settle(l)
	if l.items == 0 && l.running == 0 && l.pause == nil {
		delete(q.lines, l.key)
	}
}

// settle adds a line to its desk's open lines, or removes it.
func (q *backlog) settle(l *line) {
	switch open := l.waiting.Len() != 0 && l.running < q.ofRequester() && l.pause == nil; {
	case open && l.place == nil:
		l.place = l.desk.open.PushBack(l)
		q.work.Signal()
	case !open && l.place != nil:
		l.desk.open.Remove(l.place)
		l.place = nil
	}
}

// next takes the request that is to be looked at next, or nil.
func (q *backlog) next() *item {
	for _, d := range q.desks {
		for d.running < q.opts.Workers && d.open.Len() != 0 {
			l := d.open.Front().Value.(*line)
			it := l.waiting.Front().Value.(*item)
			if q.opts.Done.has(it.uid) {
				q.drop(it)
				continue
			}
			if wait := q.limit(it); wait > 0 {
				l.pause = time.AfterFunc(wait, func() { q.resume(l) }) //goroutine: changes the queue alone
				q.settle(l)
				continue
			}
			it.leave()
			q.busy[it.key] = it
			l.running++
			d.running++
			d.open.MoveToBack(l.place)
			q.settle(l)
			return it
		}
	}
	return nil
}

// limit says how long a request waits for its requester's rate. A certificate that only has
// to be recorded does not.
func (q *backlog) limit(it *item) time.Duration {
	if q.opts.Limit == nil || it.signed {
		return 0
	}
	return q.opts.Limit(it.line.key.Name)
}

func (q *backlog) resume(l *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.pause = nil
	q.tidy(l)
}

// gone forgets a request that was deleted or is finished.
func (q *backlog) gone(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil {
		q.drop(it)
	}
}

// listed forgets the requests to a signer that the list of a round does not have.
func (q *backlog) listed(signer string, round int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, it := range q.items {
		if key.SignerName == signer && it.round < round {
			q.drop(it)
		}
	}
}

// leftOut reports, once, whether some requests to a signer were left out.
func (q *backlog) leftOut(signer string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.desks[signer]
	if d == nil || !d.left {
		return false
	}
	d.left = false
	return true
}

// object returns a request, or nil if it is held by its name alone.
func (q *backlog) object(key Key) (o *certificatesv1.CertificateSigningRequest, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil {
		return it.object, true
	}
	return nil, false
}
