package requests

import (
	"context"
	"fmt"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// Reader reads a pending request.
type Reader interface {
	// Get fails with NotFound if no request of that name is pending.
	Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error
}

// pending holds the pending requests to one signer, which a cache cannot do: the API server
// keeps a finished request for an hour, and nobody looks at it again. It is a source of keys
// for a controller, and the store that a reflector keeps up to date.
type pending struct {
	signer    string
	reflector *cache.Reflector
	queue     workqueue.TypedRateLimitingInterface[Key]
	listed    chan struct{} // closed once they have been listed
	once      sync.Once
	mu        sync.Mutex
	objects   map[string]*certificatesv1.CertificateSigningRequest
}

func newPending(signer string) *pending {
	return &pending{signer: signer, listed: make(chan struct{}), objects: map[string]*certificatesv1.CertificateSigningRequest{}}
}

// follow has it follow a cluster's API server once it is started.
func (p *pending) follow(from cluster.Cluster) error {
	api, err := apiutil.RESTClientForGVK(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), false, false,
		from.GetConfig(), serializer.NewCodecFactory(from.GetScheme()), from.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("requests to %s: %w", p.signer, err)
	}
	p.reflector = cache.NewReflectorWithOptions(
		cache.NewListWatchFromClient(api, "certificatesigningrequests", "", fields.OneTermEqualSelector("spec.signerName", p.signer)),
		&certificatesv1.CertificateSigningRequest{}, p, cache.ReflectorOptions{Name: p.signer})
	return nil
}

// Start has the requests watched until ctx ends, and puts their keys into the queue.
func (p *pending) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[Key]) error {
	p.queue = queue
	go p.reflector.RunWithContext(ctx)
	return nil
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

// Get reads a request into a CertificateSigningRequest.
func (p *pending) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	object := p.get(key.Name)
	if object == nil {
		return apierrors.NewNotFound(certificatesv1.Resource("certificatesigningrequests"), key.Name)
	}
	object.DeepCopyInto(into.(*certificatesv1.CertificateSigningRequest))
	return nil
}

func (p *pending) get(name string) *certificatesv1.CertificateSigningRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[name]
}

// looked drops a request that has its certificate and was last looked at as seen.
func (p *pending) looked(name string, seen *certificatesv1.CertificateSigningRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seen != nil && len(seen.Status.Certificate) != 0 && p.objects[name] == seen {
		delete(p.objects, name)
	}
}

// waits reports whether a request still has to be looked at: until it is finished, and once
// more when Kubernetes' own signer has made a certificate, which has to be recorded.
func waits(r *certificatesv1.CertificateSigningRequest) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			return false
		}
	}
	return len(r.Status.Certificate) == 0 || r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName
}

// Add takes an object that a reflector has seen.
func (p *pending) Add(object any) error {
	r, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return fmt.Errorf("requests to %s: got a %T", p.signer, object)
	}
	if !waits(r) {
		return p.Delete(r)
	}
	r.ManagedFields = nil
	p.mu.Lock()
	p.objects[r.Name] = r
	p.mu.Unlock()
	p.queue.Add(Key{SignerName: p.signer, Name: r.Name})
	return nil
}

// Update is the same as Add.
func (p *pending) Update(object any) error { return p.Add(object) }

// Delete removes a request.
func (p *pending) Delete(object any) error {
	r, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return fmt.Errorf("requests to %s: got a %T", p.signer, object)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.objects, r.Name)
	return nil
}

// Replace takes a whole list.
func (p *pending) Replace(list []any, _ string) error {
	p.mu.Lock()
	p.objects = map[string]*certificatesv1.CertificateSigningRequest{}
	p.mu.Unlock()
	for _, object := range list {
		if err := p.Add(object); err != nil {
			return err
		}
	}
	p.once.Do(func() { close(p.listed) })
	return nil
}

// Resync does nothing.
func (p *pending) Resync() error { return nil }
