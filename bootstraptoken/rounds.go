package bootstraptoken

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// AddressError is why one address did not lead to the cluster.
type AddressError struct {
	// Address is the server's URL, without its query.
	Address string
	// Err is the last error there. It matches [ErrRetry] unless the address was refused, and
	// then the check too that failed last.
	Err error
}

// DiscoverError says why discovery failed, address by address in the order in which they
// were given. errors.Is looks into each, and finds [ErrRetry] unless every address was
// refused: as long as one was not, the answer may still be found there.
type DiscoverError struct {
	// Addresses has what was tried, once each.
	Addresses []AddressError
	// Err is the context's error where time was up; nil where every address refused.
	Err error
}

// Error gives each address and its error, and that time was up if it was.
func (e *DiscoverError) Error() string {
	var b strings.Builder
	b.WriteString("bootstraptoken: no address led to the cluster")
	for _, a := range e.Addresses {
		b.WriteString("; ")
		b.WriteString(refusal.Text(a.Address))
		b.WriteString(": ")
		b.WriteString(a.Err.Error())
	}
	if e.Err != nil {
		b.WriteString("; ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap lets errors.Is find what is wrong with any of the addresses.
func (e *DiscoverError) Unwrap() []error {
	var errs []error
	if e.Err != nil {
		errs = append(errs, ErrRetry, e.Err)
	}
	for _, a := range e.Addresses {
		errs = append(errs, a.Err)
	}
	return errs
}

// rounds tries one server after the other until one try returns no error. Servers whose
// error is a refusal are not tried again; when there are none left, or no time, the
// error is a *DiscoverError.
func (n *Network) rounds(ctx context.Context, servers []*url.URL, try func(context.Context, *url.URL) error) error {
	if err := n.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, orDefault(n.Timeout, DefaultTimeout))
	defer cancel()
	last := make([]error, len(servers))
	longest := orDefault(n.MaxBackoff, DefaultMaxBackoff)
	for wait := orDefault(n.MinBackoff, DefaultMinBackoff); ; wait = min(2*wait, longest) {
		undecided := false
		for i, server := range servers {
			if last[i] != nil && !errors.Is(last[i], ErrRetry) {
				continue
			}
			err := try(ctx, server)
			if err == nil {
				return nil
			}
			if last[i] == nil || ctx.Err() == nil {
				last[i] = err // and not that time was up, where there is something better
			}
			undecided = undecided || errors.Is(last[i], ErrRetry)
		}
		if !undecided {
			return discoverError(servers, last, nil)
		}
		if err := sleep(ctx, wait+rand.N(wait/5+1)); err != nil {
			return discoverError(servers, last, err)
		}
	}
}

func discoverError(servers []*url.URL, last []error, err error) error {
	e := &DiscoverError{Err: err}
	for i, server := range servers {
		e.Addresses = append(e.Addresses, AddressError{Address: withoutQuery(server), Err: last[i]})
	}
	return e
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// check refuses durations that are negative.
func (n *Network) check() error {
	for _, d := range []time.Duration{n.Timeout, n.RequestTimeout, n.MinBackoff, n.MaxBackoff} {
		if d < 0 {
			return &Error{Check: CheckOptions, Got: d.String(), Want: "a duration that is not negative"}
		}
	}
	return nil
}
