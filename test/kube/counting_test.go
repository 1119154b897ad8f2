package kube

import (
	"context"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counting counts the calls of a client.
type counting struct {
	client.Client
	reads, writes atomic.Int64
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	c.reads.Add(1)
	return c.Client.Get(ctx, key, o, options...)
}

func (c *counting) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	c.writes.Add(1)
	return c.Client.Create(ctx, o, options...)
}

func (c *counting) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	c.writes.Add(1)
	return c.Client.Update(ctx, o, options...)
}

func (c *counting) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	c.writes.Add(1)
	return c.Client.Delete(ctx, o, options...)
}
