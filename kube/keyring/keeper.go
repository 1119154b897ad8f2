// Package keyring keeps a control plane's challenge keys in a Secret that all replicas share.
// A [Keeper] makes the first key in an empty Secret, rotates the keys, and has every replica's
// attest.KeyRing read them often enough. It never creates the Secret: a program that may create
// Secrets may have the token of any service account.
//
// A key that has leaked is retired by taking all keys out of the Secret: the next look, within
// attest.MaxRingAge, makes a new one, and every replica forgets the others.
//
// Anyone who can read the Secret can impersonate any machine whose secrets travel in
// credentials. Guard it like the key of a CA: with a role that names only this Secret, and
// with encryption at rest.
package keyring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/refusal"
)

// defaultRotateAfter is how long a key is used for challenges before the next one replaces it.
const defaultRotateAfter = 30 * 24 * time.Hour

// Config is the configuration of a [Keeper]. The fields of the first group have no default:
// leaving one out is an error.
type Config struct {
	// Reader reads the Secret without a cache, as a manager's GetAPIReader does.
	Reader client.Reader
	// Writer updates the Secret. A ReadOnly keeper needs none.
	Writer client.Writer
	// Secret is the namespace and name of the Secret. No other program writes keys to it. Other entries
	// are left as they are, and logged, if their names have other characters than hexadecimal digits.
	Secret client.ObjectKey
	// Ring is the ring that the verifier uses, made with new(attest.KeyRing).
	Ring *attest.KeyRing

	// ReadOnly leaves creating and rotating keys to others.
	ReadOnly bool
	// RotateAfter is how long a key is used for challenges, at least a day; zero means
	// 30 days.
	RotateAfter time.Duration
	// Metrics is where nodeattest_key_ring_active_timestamp_seconds is registered: since when
	// the key that makes challenges is active, 0 without such a key. While rotation fails, it
	// falls behind. Nil registers it nowhere.
	Metrics prometheus.Registerer
	// Now is the clock; nil means time.Now. It must be the verifier's clock.
	Now func() time.Time
}

// Keeper keeps a key ring. It is a manager.Runnable that runs in every replica, whichever one
// leads, and is safe for use by multiple goroutines.
type Keeper struct {
	c       Config
	last    atomic.Pointer[reading]
	foreign atomic.Pointer[string] // the entries that are no keys, as they were logged
}

// reading is the last refresh of the ring.
type reading struct {
	at   time.Time
	keys []attest.RingKey
}

// active returns since when the key that makes challenges is active, or the zero time.
func (r *reading) active(now time.Time) (since time.Time) {
	for _, k := range r.keys {
		if !k.ActiveAt.After(now) && (k.RetiredAt.IsZero() || k.RetiredAt.After(now)) && k.ActiveAt.After(since) {
			since = k.ActiveAt
		}
	}
	return since
}

// New checks the configuration. The error is refusal.CheckConfig.
func New(config Config) (*Keeper, error) {
	switch {
	case config.Reader == nil:
		return nil, refusal.Config("Reader", "", "one that reads past caches")
	case !config.ReadOnly && config.Writer == nil:
		return nil, refusal.Config("Writer", "", "one")
	case config.Secret.Namespace == "" || config.Secret.Name == "":
		return nil, refusal.Config("Secret", refusal.Quote(config.Secret.String()), "a namespace and a name")
	case config.Ring == nil:
		return nil, refusal.Config("Ring", "", "the verifier's")
	case config.RotateAfter != 0 && config.RotateAfter < 24*time.Hour:
		return nil, refusal.Config("RotateAfter", config.RotateAfter.String(), "0, or a day or more")
	}
	config.RotateAfter = cmp.Or(config.RotateAfter, defaultRotateAfter)
	if config.Now == nil {
		config.Now = time.Now
	}
	k := &Keeper{c: config}
	k.last.Store(new(reading))
	k.foreign.Store(new(string))
	if config.Metrics == nil {
		return k, nil
	}
	return k, config.Metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nodeattest_key_ring_active_timestamp_seconds",
		Help: "Since when the challenge key in use is active, in Unix seconds; 0 without a key.",
	}, func() float64 { return float64(max(0, k.last.Load().active(k.c.Now()).Unix())) }))
}

// made reports whether New made the keeper.
func (k *Keeper) made() bool { return k != nil && k.c.Ring != nil }

// NeedLeaderElection says that every replica reads the ring (manager's
// LeaderElectionRunnable).
func (*Keeper) NeedLeaderElection() bool { return false }

// Start reads the Secret until ctx ends, three times as often as attest.MaxRingAge requires,
// and sooner after a failed read. While reads fail, the ring grows stale; then nothing is
// verified, and everything has to be tried again.
func (k *Keeper) Start(ctx context.Context) error { //goroutine: the API server's client alone
	if !k.made() {
		return errNone
	}
	const pause = attest.MaxRingAge / 3
	retry := firstRetry
	for {
		wait := pause
		if err := k.Refresh(ctx); err == nil {
			retry = firstRetry
		} else if ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "failed to read or rotate the key ring; it is tried again", "secret", k.c.Secret.String())
			wait, retry = min(retry, pause), min(2*retry, pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// firstRetry is how long after a failed read the ring is read again, at first.
const firstRetry = time.Second

// Refresh reads the Secret once, and makes a key if no key is in use, or if it is old. If several
// replicas do so at once, one wins, and the others take its key. If the next key cannot be stored,
// Refresh returns an error and the ring has the keys that were read.
func (k *Keeper) Refresh(ctx context.Context) error {
	if !k.made() {
		return errNone
	}
	var err error
	for range 3 {
		if err = k.refresh(ctx); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("keyring: Secret %s: %w", k.c.Secret, err)
	}
	return nil
}

// Errors of a keeper, and faults of a key ring.
var (
	errNone   = errors.New("keyring: a keeper that New did not make")
	errStale  = errors.New("keyring: the key ring has not been read lately")
	errAhead  = errors.New("keyring: the key ring was read in the future: the clock was set back")
	errUnused = errors.New("keyring: no key is in use")
	errOld    = errors.New("keyring: the key in use should have been replaced long ago")
)

// Check is a readiness check (healthz.Checker). It returns an error while nothing can be
// verified, and, if the keeper rotates the keys, while that has failed for as long as a key is
// used.
func (k *Keeper) Check(*http.Request) error {
	if !k.made() {
		return errNone
	}
	now, last := k.c.Now(), k.last.Load()
	age, active := now.Sub(last.at), last.active(now)
	switch {
	case age > attest.MaxRingAge:
		return errStale
	case age < 0:
		return errAhead
	case active.IsZero():
		return errUnused
	case !k.c.ReadOnly && now.Sub(active) > 2*k.c.RotateAfter: // others know how long a key is used
		return errOld
	}
	return nil
}

// use refreshes the ring with keys.
func (k *Keeper) use(keys []attest.RingKey, at time.Time) error {
	if err := k.c.Ring.Refresh(keys, at); err != nil {
		return err
	}
	k.last.Store(&reading{at, keys})
	return nil
}

func (k *Keeper) refresh(ctx context.Context) error {
	readAt := k.c.Now()
	var secret corev1.Secret
	if err := k.c.Reader.Get(ctx, k.c.Secret, &secret); err != nil {
		return err
	}
	keys, due, err := []attest.RingKey{attest.NewRingKey(readAt.Truncate(time.Second))}, true, error(nil)
	foreign := k.noKeys(ctx, secret.Data)
	if k.c.ReadOnly || len(secret.Data) != len(foreign) {
		if keys, err = attest.ParseRingKeys(secret.Data); err == nil {
			err = k.use(keys, readAt)
		}
		if err != nil {
			return err
		}
		keys, due = attest.RotateKeys(keys, readAt, k.c.RotateAfter)
	}
	if k.c.ReadOnly || !due {
		return nil
	}
	if secret.Data, err = attest.MarshalRingKeys(keys); err != nil {
		return err
	}
	maps.Copy(secret.Data, foreign)
	if err := k.c.Writer.Update(ctx, &secret); err != nil {
		return fmt.Errorf("the next key: %w", err)
	}
	return k.use(keys, readAt)
}

// noKeys returns the entries of the Secret that attest.ParseRingKeys leaves out, and logs their
// names when they have changed.
func (k *Keeper) noKeys(ctx context.Context, data map[string][]byte) map[string][]byte {
	foreign := maps.Clone(data)
	maps.DeleteFunc(foreign, func(name string, _ []byte) bool { return strings.Trim(name, "0123456789abcdefABCDEF") == "" })
	names := refusal.Quotes(slices.Sorted(maps.Keys(foreign)))
	if *k.foreign.Swap(&names) != names && len(foreign) != 0 {
		log.FromContext(ctx).Info("the key ring's Secret has entries that are not keys; they are ignored and kept", "secret", k.c.Secret.String(), "entries", names)
	}
	return foreign
}
