package externalsigner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodeattest/nodeattest/jws"
)

// A load requests tokens for a pod and has each reviewed, at several API servers in turn, until it is stopped.
type load struct {
	stop func() // and waits

	mu     sync.Mutex
	tokens map[jws.Algorithm][]string // that were issued and accepted
	failed []error                    // of tokens that were not issued, or not accepted
}

// startLoad starts workers, who issue tokens at one of the servers and review it at the next.
func startLoad(t *testing.T, pod *corev1.Pod, workers int, servers ...*apiServer) *load {
	t.Helper()
	for _, s := range servers {
		s.token(t, pod) // each knows the pod
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{tokens: map[jws.Algorithm][]string{}}
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			for turn := i; ctx.Err() == nil; turn++ {
				l.add(l.once(t.Context(), pod, servers[turn%len(servers)], servers[(turn+1)%len(servers)]))
			}
		})
	}
	l.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(l.stop)
	return l
}

// once issues one token and has it reviewed.
func (l *load) once(ctx context.Context, pod *corev1.Pod, issuer, reviewer *apiServer) (string, error) {
	token, err := issuer.issue(ctx, pod)
	if err != nil {
		return "", fmt.Errorf("not issued: %w", err)
	}
	return token, reviewer.review(ctx, token)
}

func (l *load) add(token string, err error) {
	parsed, wrong := jws.Parse(token)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.failed = append(l.failed, err)
	case wrong != nil:
		l.failed = append(l.failed, wrong)
	default:
		l.tokens[parsed.Algorithm()] = append(l.tokens[parsed.Algorithm()], token)
	}
}

// count returns how many tokens of the algorithms were accepted so far, of all without any.
func (l *load) count(algorithms ...jws.Algorithm) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for algorithm, tokens := range l.tokens {
		if len(algorithms) == 0 || slices.Contains(algorithms, algorithm) {
			n += len(tokens)
		}
	}
	return n
}

// await waits until so many tokens of an algorithm were accepted.
func (l *load) await(t *testing.T, n int, algorithms ...jws.Algorithm) {
	t.Helper()
	eventually(t, func() error {
		if got := l.count(algorithms...); got < n {
			return fmt.Errorf("%d tokens of %v, want %d", got, algorithms, n)
		}
		return nil
	})
}

// end stops the load, reports it, and fails the test for each token that was refused.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	for algorithm, tokens := range maps.All(l.tokens) {
		t.Logf("%s: %d tokens issued and accepted", algorithm, len(tokens))
	}
	t.Logf("%d tokens in all, %d refused", l.count(), len(l.failed))
	for _, err := range l.failed[:min(5, len(l.failed))] {
		t.Error(err)
	}
}
