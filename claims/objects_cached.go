package claims

import (
	"context"
	"math"
	"sync"
	"time"
)

// DefaultCacheEntries is how many objects of each kind a cache keeps unless told
// otherwise.
const DefaultCacheEntries = 10000

// CacheConfig says what a cache of objects keeps.
type CacheConfig struct {
	// MaxAge is for how long an answer is given again. It is required: a token that is
	// bound to an object lives that much longer than the object. kube-apiserver keeps
	// its verdict on a token for 10 seconds. A validator's MaxStaleness must be as long,
	// and longer where the getter behind is a [StaleObjects].
	MaxAge time.Duration
	// MaxEntries is how many objects of each kind are kept; 0 means
	// DefaultCacheEntries. Beyond it, those that are too old go, then any.
	MaxEntries int
	// Now is the clock; nil for time.Now.
	Now func() time.Time
}

// CachedObjects is a [StaleObjects] that remembers the answers of another Objects. Each
// is as of the time before it was asked for, or earlier where the other says so. Only
// objects are remembered: that one does not exist, and errors, are asked for again. It is
// safe for concurrent use.
type CachedObjects struct {
	from            Objects
	serviceAccounts cache[Object, *Object]
	pods            cache[Pod, *Pod]
	secrets         cache[Object, *Object]
	nodes           cache[Node, *Node]
}

// NewCachedObjects makes a cache in front of another getter. The error is [CheckConfig].
func NewCachedObjects(from Objects, config CacheConfig) (*CachedObjects, error) {
	switch {
	case from == nil:
		return nil, configError("no object getter", "an implementation of Objects")
	case config.MaxAge <= 0:
		return nil, configError("a maximum age of "+config.MaxAge.String(), "more than 0")
	case config.MaxEntries < 0:
		return nil, configError("a negative number of entries", "0 or more")
	case config.MaxEntries == 0:
		config.MaxEntries = DefaultCacheEntries
	}
	config.Now = clock(config.Now)
	// An answer of any age will do, but not one that keeps its age to itself.
	c := &CachedObjects{from: boundedObjects{from, math.MaxInt64, config.Now}}
	c.serviceAccounts.config = config
	c.pods.config = config
	c.secrets.config = config
	c.nodes.config = config
	return c, nil
}

// MayBeStale makes it a [StaleObjects].
func (c *CachedObjects) MayBeStale() {}

// ServiceAccount returns a service account.
func (c *CachedObjects) ServiceAccount(ctx context.Context, namespace, name string) (*Object, error) {
	return c.serviceAccounts.get(objectKey{namespace, name}, func() (*Object, error) {
		return c.from.ServiceAccount(ctx, namespace, name)
	})
}

// Pod returns a pod.
func (c *CachedObjects) Pod(ctx context.Context, namespace, name string) (*Pod, error) {
	return c.pods.get(objectKey{namespace, name}, func() (*Pod, error) {
		return c.from.Pod(ctx, namespace, name)
	})
}

// Secret returns a Secret's metadata.
func (c *CachedObjects) Secret(ctx context.Context, namespace, name string) (*Object, error) {
	return c.secrets.get(objectKey{namespace, name}, func() (*Object, error) {
		return c.from.Secret(ctx, namespace, name)
	})
}

// Node returns a node.
func (c *CachedObjects) Node(ctx context.Context, name string) (*Node, error) {
	return c.nodes.get(objectKey{name: name}, func() (*Node, error) { return c.from.Node(ctx, name) })
}

// A cache holds objects of one kind.
type cache[T any, P holder[T]] struct {
	config  CacheConfig
	mu      sync.RWMutex
	entries map[objectKey]cached[T]
}

type cached[T any] struct {
	object *T
	until  time.Time
}

// get returns what is remembered, or asks. The time counts from before the question, so
// that no answer is older than it seems.
func (c *cache[T, P]) get(key objectKey, ask func() (*T, error)) (*T, error) {
	if c.config.Now == nil {
		return nil, configError("a CachedObjects that NewCachedObjects did not make", "one that it made")
	}
	now := c.config.Now()
	c.mu.RLock()
	entry, ok := c.entries[key]
	c.mu.RUnlock()
	if ok && now.Before(entry.until) && !now.Before(entry.until.Add(-c.config.MaxAge)) { // not before it was asked for
		return entry.object, nil
	}
	object, err := ask()
	if object == nil { // boundedObjects returns none beside an error
		c.forget(key, entry)
		return object, err
	}
	kept := new(T)
	*kept = *object // the getter's own stays as it is
	if asOf := &P(kept).object().AsOf; asOf.IsZero() || now.Before(*asOf) {
		*asOf = now
	}
	c.put(key, cached[T]{object: kept, until: now.Add(c.config.MaxAge)}, now)
	return kept, nil
}

// forget drops an entry that was found too old, unless another call replaced it.
func (c *cache[T, P]) forget(key objectKey, entry cached[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] == entry {
		delete(c.entries, key)
	}
}

func (c *cache[T, P]) put(key objectKey, entry cached[T], now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = make(map[objectKey]cached[T])
	}
	if _, ok := c.entries[key]; !ok && len(c.entries) >= c.config.MaxEntries {
		c.makeRoom(now)
	}
	c.entries[key] = entry
}

// makeRoom drops what is too old, and where nothing is, an eighth of the entries, so that
// a full cache is not walked through at each call.
func (c *cache[T, P]) makeRoom(now time.Time) {
	for key, entry := range c.entries {
		if !now.Before(entry.until) {
			delete(c.entries, key)
		}
	}
	drop := len(c.entries) - c.config.MaxEntries + 1
	if drop <= 0 {
		return
	}
	drop = max(drop, c.config.MaxEntries/8)
	for key := range c.entries {
		if drop == 0 {
			return
		}
		delete(c.entries, key)
		drop--
	}
}
