/** Import this first: the keeper reads the sockets of this process, as on a runtime whose event loop cannot. */

process.env['HOLDFAST_READER'] = 'keeper';
