package authenticator

import (
	"crypto/ecdsa"
	"errors"
	"io/fs"
	"time"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// view is what there was, on disk and in memory, when it was last read: a step of the loop reads
// each file once. It is for one goroutine.
type view struct {
	a     *Authenticator
	as    role
	now   time.Time
	state state
	seen  map[*item]certificates
	// pending is the key to ask with, of a machine without evidence.
	pending *ecdsa.PrivateKey
}

func (a *Authenticator) view(as role) *view { return (&view{a: a, as: as}).refresh() }

// refresh has everything read anew.
func (v *view) refresh() *view {
	v.state, v.now, v.seen = v.a.readState(), v.a.c.Now(), map[*item]certificates{}
	return v
}

// of is what there is for one purpose.
func (v *view) of(i *item) certificates {
	c, ok := v.seen[i]
	if !ok {
		c = certificates{have: v.a.load(i, i.file), previous: v.a.load(i, i.previous), wanted: &i.Wanted, password: v.a.password()}
		if v.as.daemon && !i.Once { // so that the plugin, which keeps the kubelet waiting, has nothing to do
			c.lead = time.Minute
		}
		v.seen[i] = c
	}
	return c
}

// next returns the next step for one certificate.
func (v *view) next(i *item) step { return next(v.state[i.file], v.of(i), v.now) }

// usable are the certificates that have not ended, the best first.
func (v *view) usable(i *item) []*certstore.Pair { return v.of(i).usable(v.state[i.file], v.now) }

// inHand is the certificate that works as far as is known, or nil.
func (v *view) inHand(i *item) *certstore.Pair {
	if all := v.usable(i); len(all) != 0 && !v.state[i.file].refused(all[0]) {
		return all[0]
	}
	return nil
}

// load reads a stored pair. It returns nil if no pair is for this node and this purpose, or if the
// file cannot be used, which is logged.
func (a *Authenticator) load(i *item, file string) *certstore.Pair {
	if file == "" {
		return nil
	}
	p, err := i.store.ReadPair(file)
	if errors.Is(err, fs.ErrNotExist) && i.store != a.store {
		p, err = a.store.ReadPair(file) // from before there was a folder of keys
	}
	if err == nil {
		err = i.Check(p.Leaf)
	}
	if err != nil {
		if before, _ := a.said.Swap(file, err.Error()); !errors.Is(err, fs.ErrNotExist) && before != err.Error() {
			a.c.Log.Warn("a stored certificate cannot be used", "file", i.store.Path(file), "why", err.Error())
		}
		return nil
	}
	return p
}

// password identifies the password that the evidence would use now: it is another one once its
// file has changed, or in another process if it comes from no file.
func (a *Authenticator) password() string {
	if k, ok := a.c.Kind.(interface{ password() string }); ok {
		if id := k.password(); id != "" {
			return id
		}
	}
	return a.id
}
