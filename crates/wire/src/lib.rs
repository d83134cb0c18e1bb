//! Event Hubs on AMQP: what client and server share.
