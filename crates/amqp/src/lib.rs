//! AMQP 1.0: how values and messages are encoded.
