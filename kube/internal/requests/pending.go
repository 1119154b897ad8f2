package requests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// Reader reads a pending request.
type Reader interface {
	// Get fails with NotFound if no request of that name is pending.
	Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error
}

// pending follows the requests to one signer, and puts undecided requests into a backlog. A cache
// would also hold finished requests, which the API server keeps for an hour. It is a controller's
// source of keys, and a reflector's list, watch and store.
type pending struct {
	signer  string
	backlog *backlog
	api     rest.Interface
	round   int           // of lists; the reflector's alone
	listed  chan struct{} // closed once they have been listed

	mu       sync.Mutex
	started  bool
	err      error // of the last list
	watching watch.Interface
	relist   atomic.Bool // the next watch is to be a list
}

func newPending(signer string, b *backlog) *pending {
	return &pending{signer: signer, backlog: b, listed: make(chan struct{})}
}

// follow has it follow a cluster's API server once it is started.
func (p *pending) follow(from cluster.Cluster) (err error) {
	if p.api, err = Client(from.GetConfig(), from.GetHTTPClient(), from.GetScheme()); err != nil {
		return fmt.Errorf("requests to %s: %w", p.signer, err)
	}
	return nil
}

// Start has the requests followed until ctx ends.
func (p *pending) Start(ctx context.Context, _ workqueue.TypedRateLimitingInterface[Key]) error { //goroutine: only starts those two below
	p.mu.Lock()
	p.started = true
	p.mu.Unlock()
	source := &cache.ListWatch{DisableChunking: true,
		ListWithContextFunc:  func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) { return p.list(ctx) },
		WatchFuncWithContext: p.watch,
	}
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(source, p),
		&certificatesv1.CertificateSigningRequest{}, p, cache.ReflectorOptions{Name: p.signer})
	go reflector.RunWithContext(ctx) //goroutine: client-go and the backlog alone
	go func() {                      //goroutine: the backlog and its watch alone
		_ = wait.PollUntilContextCancel(ctx, relistInterval, false, func(context.Context) (bool, error) { //goroutine: in this one; the backlog and its watch alone
			p.takeLeftOut()
			return false, nil
		})
	}()
	return nil
}

// IsWatchListSemanticsUnSupported has the reflector list: a list by a watch would be held in memory
// as a whole.
func (*pending) IsWatchListSemanticsUnSupported() bool { return true }

// relistInterval is how often the requests are listed again while some were left out.
const relistInterval = time.Minute

// takeLeftOut ends the watch if some requests were left out: a list comes next.
func (p *pending) takeLeftOut() {
	if !p.backlog.leftOut(p.signer) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relist.Store(true)
	if p.watching != nil {
		p.watching.Stop()
	}
}

// selector selects the requests to the signer.
func (p *pending) selector() fields.Selector {
	return fields.OneTermEqualSelector("spec.signerName", p.signer)
}

// list puts the undecided requests into the backlog, and returns an empty list to the reflector.
func (p *pending) list(ctx context.Context) (runtime.Object, error) {
	p.round++
	version, err := Each(ctx, p.api, p.selector(), p.see)
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p.backlog.listed(p.signer, p.round)
	return &certificatesv1.CertificateSigningRequestList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
}

func (p *pending) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if p.relist.Swap(false) {
		return nil, apierrors.NewResourceExpired("some requests were left out of the last list")
	}
	options.Watch, options.FieldSelector = true, p.selector().String()
	w, err := p.api.Get().Resource(resource).VersionedParams(&options, scheme.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching = w
	if p.relist.Load() { // meanwhile
		w.Stop()
	}
	return w, nil
}

// WaitForSync waits until the requests have been listed.
func (p *pending) WaitForSync(ctx context.Context) error {
	select {
	case <-p.listed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("requests to %s were not listed: %w", p.signer, ctx.Err())
	}
}

// check reports whether the requests are followed, if they are to be.
func (p *pending) check(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return nil // another replica leads
	}
	if p.err != nil {
		return p.err
	}
	select {
	case <-p.listed:
		return nil
	default:
		return fmt.Errorf("requests to %s have not been listed yet", p.signer)
	}
}

// Get reads a request into a CertificateSigningRequest: one that the backlog holds by its name
// alone from the API server.
func (p *pending) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	object, ok := p.backlog.object(Key{SignerName: p.signer, Name: key.Name})
	if ok && object == nil {
		selector := fields.AndSelectors(p.selector(), fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name))
		if _, err := Each(ctx, p.api, selector, func(o *certificatesv1.CertificateSigningRequest) { object = o }); err != nil {
			return err
		}
	}
	if object == nil {
		return apierrors.NewNotFound(certificatesv1.Resource(resource), key.Name)
	}
	object.DeepCopyInto(into.(*certificatesv1.CertificateSigningRequest))
	return nil
}

// waits reports whether a request still has to be looked at: until it is finished, and once
// more when one of Kubernetes' own signers has made a certificate, which has to be recorded or, for
// serving, counted.
func (p *pending) waits(r *certificatesv1.CertificateSigningRequest) bool {
	if Has(r, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed) ||
		p.backlog.opts.Approved && !Has(r, certificatesv1.CertificateApproved) || p.backlog.opts.Done.Has(r) {
		return false
	}
	return len(r.Status.Certificate) == 0 || r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName ||
		r.Spec.SignerName == certificatesv1.KubeletServingSignerName
}

// Has reports whether a request has a condition of one of the types.
func Has(r *certificatesv1.CertificateSigningRequest, types ...certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return slices.Contains(types, c.Type) })
}

// see takes a request as it is now, and lean.
func (p *pending) see(r *certificatesv1.CertificateSigningRequest) {
	if p.waits(r) {
		p.backlog.put(r, p.round)
	} else {
		p.backlog.gone(Key{SignerName: p.signer, Name: r.Name})
	}
}

// Add takes an object that a reflector has seen.
func (p *pending) Add(object any) error {
	r, err := p.request(object)
	if err == nil {
		p.see(lean(r))
	}
	return err
}

// Update is the same as Add.
func (p *pending) Update(object any) error { return p.Add(object) }

// Delete removes a request.
func (p *pending) Delete(object any) error {
	r, err := p.request(object)
	if err == nil {
		p.backlog.gone(Key{SignerName: p.signer, Name: r.Name})
	}
	return err
}

func (p *pending) request(object any) (*certificatesv1.CertificateSigningRequest, error) {
	r, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return nil, fmt.Errorf("requests to %s: got a %T", p.signer, object)
	}
	return r, nil
}

// Replace is told of the end of a list, which is empty.
func (p *pending) Replace([]any, string) error {
	select {
	case <-p.listed:
	default:
		close(p.listed)
	}
	return nil
}

// Resync does nothing.
func (p *pending) Resync() error { return nil }
