package externalsigner

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// A traffic is of clients that request tokens of a pod at several API servers and have them reviewed. An API
// server that is down answers nothing, which is no refusal.
type traffic struct {
	servers []*apiServer
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	tokens   []string
	others   []string       // that were issued in another way
	keys     map[string]int // key IDs, with the number of their tokens
	issued   []int          // by server
	reviewed []int          // by server
	refused  []string
	failed   error // the last error of a request
}

// startTraffic starts two clients that issue, and two that review.
func startTraffic(t *testing.T, machines []*machine) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &traffic{stop: stop, keys: map[string]int{}, issued: make([]int, len(machines)), reviewed: make([]int, len(machines))}
	for _, on := range machines {
		l.servers = append(l.servers, on.server)
	}
	pod := l.servers[0].makePod(t)
	for _, s := range l.servers {
		s.token(t, pod) // knows the pod
	}
	for range 2 {
		l.running.Go(func() { l.repeat(ctx, func(at int) { l.issue(ctx, at, pod) }) })
		l.running.Go(func() { l.repeat(ctx, func(at int) { l.review(ctx, at, l.any()) }) })
	}
	t.Cleanup(func() {
		stop()
		l.running.Wait()
	})
	return l
}

// repeat takes a step at a server by chance, until ctx ends.
func (l *traffic) repeat(ctx context.Context, step func(at int)) {
	for ctx.Err() == nil {
		step(rand.N(len(l.servers)))
		time.Sleep(10 * time.Millisecond)
	}
}

func (l *traffic) issue(ctx context.Context, at int, pod *corev1.Pod) {
	token, err := l.servers[at].issue(ctx, pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = err
		return
	}
	l.tokens = append(l.tokens, token)
	l.issued[at]++
	if parsed, err := jws.Parse(token); err == nil {
		l.keys[parsed.KeyID()]++
	}
}

// add adds a token that was issued in another way, which is reviewed often.
func (l *traffic) add(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others = append(l.others, token)
}

// any returns a token that has been issued, old ones as well as new ones; "" before the first.
func (l *traffic) any() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.others) != 0 && rand.N(10) == 0:
		return l.others[rand.N(len(l.others))]
	case len(l.tokens) == 0:
		return ""
	}
	return l.tokens[rand.N(len(l.tokens))]
}

func (l *traffic) review(ctx context.Context, at int, token string) {
	if token == "" {
		return
	}
	made, err := l.servers[at].admin.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.failed = err
	case !made.Status.Authenticated:
		l.refused = append(l.refused, l.servers[at].url+": "+made.Status.Error)
	default:
		l.reviewed[at]++
	}
}

// settle waits until each server has issued and reviewed some more.
func (l *traffic) settle(t *testing.T) {
	t.Helper()
	const more = 30
	l.mu.Lock()
	issued, reviewed := append([]int(nil), l.issued...), append([]int(nil), l.reviewed...)
	l.mu.Unlock()
	l.await(t, func() bool {
		for at := range l.servers {
			if l.issued[at] < issued[at]+more || l.reviewed[at] < reviewed[at]+more {
				return false
			}
		}
		return true
	})
}

// awaitKeys waits until so many keys have signed.
func (l *traffic) awaitKeys(t *testing.T, keys int) {
	t.Helper()
	l.await(t, func() bool { return len(l.keys) >= keys })
}

func (l *traffic) await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(controlplane.Patience); ; time.Sleep(20 * time.Millisecond) {
		l.mu.Lock()
		is, refused, failed := done(), l.refused, l.failed
		l.mu.Unlock()
		if len(refused) != 0 {
			t.Fatalf("%d refused, the first at %s", len(refused), refused[0])
		}
		if is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(errors.Join(errors.New("no tokens are issued or reviewed"), failed))
		}
	}
}

// end ends it, and has each server review tokens of the whole time. So many keys have signed.
func (l *traffic) end(t *testing.T, keys int) {
	t.Helper()
	l.stop()
	l.running.Wait()
	rand.Shuffle(len(l.tokens), func(i, j int) { l.tokens[i], l.tokens[j] = l.tokens[j], l.tokens[i] })
	for at := range l.servers {
		for _, token := range slices.Concat(l.tokens[:min(len(l.tokens), 400)], l.others) {
			l.review(t.Context(), at, token)
		}
	}
	t.Logf("issued %d tokens with %d keys, reviewed %d times, refused %d", l.issued, len(l.keys), l.reviewed, len(l.refused))
	if len(l.refused) != 0 || len(l.keys) != keys {
		t.Errorf("tokens of %d keys, want %d; refused: %q", len(l.keys), keys, l.refused)
	}
}
